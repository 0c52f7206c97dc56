//! The follower against a model of a directory with a daemon that writes and a rotation that renames or truncates.

use proptest::prelude::*;

use super::*;

/// A file; the name is 0 for the log's path, N for `.N`, none once it is deleted.
#[derive(Debug)]
struct File {
    id: FileId,
    bytes: Vec<u8>,
    modified: i128,
    name: Option<u32>,
}

#[derive(Debug, Default)]
struct World {
    files: Vec<File>,
    /// The file that the daemon writes to.
    writer: usize,
    written: Vec<String>,
    clock: i128,
    inodes: u64,
    open: Option<FileId>,
    /// A copy may not be read yet: compressing it would lose lines.
    copied: bool,
}

impl World {
    fn new() -> Self {
        let mut world = Self::default();
        world.writer = world.create(0);
        world
    }

    fn create(&mut self, name: u32) -> usize {
        self.inodes += 1;
        self.clock += 1;
        let id = FileId { device: 1, inode: self.inodes };
        self.files.push(File { id, bytes: Vec::new(), modified: self.clock, name: Some(name) });
        self.files.len() - 1
    }

    fn named(&self, name: u32) -> Option<usize> {
        self.files.iter().position(|file| file.name == Some(name))
    }

    fn append(&mut self, text: &str) {
        self.clock += 1;
        let file = &mut self.files[self.writer];
        file.bytes.extend_from_slice(text.as_bytes());
        file.modified = self.clock;
    }

    fn write(&mut self, length: usize) {
        let number = self.written.len();
        // As with Open vSwitch, the head of a file is unique.
        let least = if self.files[self.writer].bytes.len() < HEAD { HEAD } else { 0 };
        let line = format!("{number:08}{}", "x".repeat(length.max(least)));
        self.append(&format!("{line}\n"));
        self.written.push(line);
    }

    fn shift(&mut self) {
        for file in &mut self.files {
            file.name = file.name.map(|name| if name > 0 { name + 1 } else { 0 });
        }
    }

    /// As logrotate does with `create`; the daemon still writes to the renamed file.
    fn rename(&mut self, creates: bool) {
        let Some(current) = self.named(0) else { return };
        self.shift();
        self.files[current].name = Some(1);
        if creates {
            self.create(0);
        }
    }

    /// As `vlog/reopen` does.
    fn reopen(&mut self) {
        if self.files[self.writer].name != Some(0) {
            self.write(1);
            self.writer = self.named(0).unwrap_or_else(|| self.create(0));
            self.write(1);
        }
    }

    fn copy_and_truncate(&mut self) {
        let Some(current) = self.named(0).filter(|current| *current == self.writer) else { return };
        self.shift();
        let copy = self.create(1);
        self.copied = true;
        self.files[copy].bytes = std::mem::take(&mut self.files[current].bytes);
        self.clock += 1;
        self.files[current].modified = self.clock;
    }

    /// As compression does with the name; a reader that has the file open keeps it.
    fn delete_read_ones(&mut self) {
        if self.copied {
            return;
        }
        let (open, writer) = (self.open, self.writer);
        let Some(reading) = self.files.iter().position(|file| Some(file.id) == open) else { return };
        let age = self.files[reading].name;
        for (index, file) in self.files.iter_mut().enumerate() {
            if index != writer && file.name > Some(0) && (file.name >= age) && age.is_some() {
                file.name = None;
            }
        }
    }

    fn view(&self) -> View {
        let see = |file: &File| FileView {
            id: file.id,
            size: file.bytes.len() as u64,
            modified: file.modified,
            head: file.bytes.iter().copied().take(HEAD).collect(),
        };
        let mut rotated: Vec<&File> = self.files.iter().filter(|file| file.name > Some(0)).collect();
        rotated.sort_by_key(|file| std::cmp::Reverse(file.name));
        View {
            current: self.named(0).map(|file| see(&self.files[file])),
            rotated: rotated.into_iter().map(see).collect(),
            open: self.files.iter().find(|file| Some(file.id) == self.open).map(see),
        }
    }

    /// One step of the edge; returns whether there may be more.
    fn step(&mut self, follower: &mut Follower, most: usize, out: &mut Vec<Output>) -> bool {
        match follower.next(&self.view(), out) {
            Step::Wait => {
                self.copied = false;
                false
            }
            Step::Read { file, offset } => {
                self.open = Some(file);
                let file = self.files.iter().find(|it| it.id == file).expect("the file exists");
                let rest = &file.bytes[usize::try_from(offset).unwrap()..];
                follower.read(&rest[..rest.len().min(most)], out);
                true
            }
        }
    }

    fn drain(&mut self, follower: &mut Follower, out: &mut Vec<Output>) {
        let done = (0..10_000).any(|_| !self.step(follower, READ_SIZE, out));
        assert!(done, "the follower does not come to an end");
    }
}

fn lines(out: &[Output]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for output in out {
        let Output::Line { text, continued } = output else { continue };
        assert!(text.len() <= LONGEST_LINE);
        let text = String::from_utf8(text.clone()).unwrap();
        match lines.last_mut() {
            Some(last) if *continued => last.push_str(&text),
            _ => lines.push(text),
        }
    }
    lines
}

fn restarted(follower: &Follower) -> Follower {
    let record = follower.record().map(|record| record.to_string().parse().unwrap());
    Follower::new(record.as_ref(), Start::Last(u64::MAX))
}

#[derive(Debug, Clone)]
enum Event {
    Write {
        lines: usize,
        length: usize,
    },
    /// The start of a line, completed by the next write.
    Part,
    Rename {
        creates: bool,
    },
    Reopen,
    Truncate,
    Compress,
    Steps {
        count: usize,
        most: usize,
    },
    Restart,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let lengths = proptest::sample::select(&[0_usize, 10, 100, 700, LONGEST_LINE - 8, LONGEST_LINE, 40_000][..]);
    let reads = proptest::sample::select(&[200_usize, 1000, 5000, READ_SIZE][..]);
    let event = prop_oneof![
        4 => (1_usize..5, lengths).prop_map(|(lines, length)| Event::Write { lines, length }),
        1 => Just(Event::Part),
        2 => any::<bool>().prop_map(|creates| Event::Rename { creates }),
        3 => Just(Event::Reopen),
        1 => Just(Event::Truncate),
        1 => Just(Event::Compress),
        4 => (1_usize..20, reads).prop_map(|(count, most)| Event::Steps { count, most }),
        2 => Just(Event::Restart),
    ];
    proptest::collection::vec(event, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_line_is_handed_out_once_and_in_order(events in events()) {
        let (mut world, mut out) = (World::new(), Vec::new());
        let mut follower = Follower::new(None, Start::Last(u64::MAX));
        world.drain(&mut follower, &mut out);
        let (mut part, mut compressed) = (false, false);
        for event in events {
            // Daemons write whole lines; a reader may see a part of one, but no rotation does.
            if part && !matches!(event, Event::Steps { .. } | Event::Restart | Event::Part) {
                world.append("rest\n");
                part = false;
            }
            match event {
                Event::Write { lines, length } => (0..lines).for_each(|_| world.write(length)),
                Event::Part if !part && world.files[world.writer].bytes.len() >= HEAD => {
                    let number = world.written.len();
                    world.append(&format!("{number:08}"));
                    world.written.push(format!("{number:08}rest"));
                    part = true;
                }
                Event::Part => {}
                Event::Rename { creates } => world.rename(creates),
                Event::Reopen => world.reopen(),
                Event::Truncate => world.copy_and_truncate(),
                Event::Compress => {
                    world.delete_read_ones();
                    compressed = true;
                }
                Event::Steps { count, most } => {
                    for _ in 0..count {
                        world.step(&mut follower, most, &mut out);
                    }
                }
                Event::Restart => {
                    let file = follower.file();
                    if world.files.iter().any(|it| Some(it.id) == file && it.name.is_none()) {
                        // A deleted file cannot be opened again.
                        world.drain(&mut follower, &mut out);
                    }
                    follower = restarted(&follower);
                    world.open = None;
                }
            }
        }
        if part {
            world.append("rest\n");
        }
        world.reopen();
        world.drain(&mut follower, &mut out);
        prop_assert_eq!(lines(&out), world.written);
        prop_assert!(compressed || !out.iter().any(|output| matches!(output, Output::Gap(_))));
    }

    #[test]
    fn any_view_and_any_bytes_cause_no_panic(
        record in "[0-9 ]{0,40}|1 1 [0-3] [0-9]{1,3} [01] [0-9]{1,3} [0-9a-f]{16} [0-9]{1,3}",
        views in proptest::collection::vec(
            (proptest::collection::vec((0_u64..4, any::<u64>(), any::<i64>(), ".{0,5}"), 0..4), any::<(bool, bool)>()), 0..8),
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let record = record.parse::<Record>().ok();
        let mut follower = Follower::new(record.as_ref(), Start::Last(10));
        for (files, (has_current, has_open)) in views {
            let mut files = files.into_iter().map(|(inode, size, modified, head)| FileView {
                id: FileId { device: 1, inode }, size, modified: i128::from(modified), head: head.into_bytes(),
            });
            let current = if has_current { files.next() } else { None };
            let open = if has_open { files.next() } else { None };
            let view = View { current, open, rotated: files.collect() };
            let mut out = Vec::new();
            if let Step::Read { .. } = follower.next(&view, &mut out) {
                follower.read(&bytes, &mut out);
            }
            let _ = follower.record();
        }
    }
}

#[test]
fn the_first_start_shows_the_end_of_the_log_in_whole_lines() {
    let mut world = World::new();
    for _ in 0..10 {
        world.write(200);
    }
    let shown = |last: u64| {
        let (mut world, mut out) = (
            World { files: world.view().current.map(|_| copy_of(&world)).into_iter().collect(), ..World::default() },
            Vec::new(),
        );
        let mut follower = Follower::new(None, Start::Last(last));
        world.drain(&mut follower, &mut out);
        lines(&out).len()
    };
    let line = 209;
    assert_eq!(
        [shown(0), shown(line - 1), shown(line), shown(line + 1), shown(2 * line), shown(u64::MAX)],
        [0, 0, 1, 1, 2, 10]
    );
}

fn copy_of(world: &World) -> File {
    let file = &world.files[0];
    File { id: file.id, bytes: file.bytes.clone(), modified: file.modified, name: file.name }
}

#[test]
fn rotations_while_nobody_follows_lose_nothing() {
    let (mut world, mut out) = (World::new(), Vec::new());
    world.write(100);
    let mut follower = Follower::new(None, Start::Last(u64::MAX));
    world.drain(&mut follower, &mut out);
    world.open = None;
    for _ in 0..3 {
        world.write(100);
        world.rename(true);
        world.write(100);
        world.reopen();
    }
    world.copy_and_truncate();
    world.write(100);
    let mut follower = restarted(&follower);
    world.drain(&mut follower, &mut out);
    assert_eq!(lines(&out), world.written);
    assert!(!out.iter().any(|output| matches!(output, Output::Gap(_))));
}

#[test]
fn a_gap_is_reported_where_lines_are_missing() {
    let (mut world, mut out) = (World::new(), Vec::new());
    world.write(100);
    let mut follower = Follower::new(None, Start::Last(u64::MAX));
    world.drain(&mut follower, &mut out);
    world.write(100);
    world.rename(true);
    world.reopen();
    let lost = world.named(1).unwrap();
    world.files[lost].name = None;
    world.open = None;
    let mut follower = restarted(&follower);
    world.drain(&mut follower, &mut out);
    assert!(matches!(&out[1], Output::Gap(why) if why.contains("compressed or deleted")), "{:?}", out[1]);
    assert_eq!(lines(&out[2..]), world.written[3..], "what the new file has");
}

#[test]
fn an_inode_that_is_used_again_is_another_file() {
    let (mut world, mut out) = (World::new(), Vec::new());
    world.write(100);
    let mut follower = Follower::new(None, Start::Last(u64::MAX));
    world.drain(&mut follower, &mut out);
    // Deleted and created again: same inode, longer content.
    world.files[0].bytes.clear();
    world.write(500);
    world.open = None;
    let mut follower = restarted(&follower);
    world.drain(&mut follower, &mut out);
    assert_eq!(lines(&out), world.written);
}

#[test]
fn memory_is_bounded_also_by_a_line_without_an_end() {
    let mut world = World::new();
    world.append(&"x".repeat(1_000_000));
    let (mut follower, mut out) = (Follower::new(None, Start::Last(u64::MAX)), Vec::new());
    world.drain(&mut follower, &mut out);
    assert_eq!(out.len(), 1_000_000 / LONGEST_LINE);
    assert!(out[1..].iter().all(|output| matches!(output, Output::Line { continued: true, .. })));
}
