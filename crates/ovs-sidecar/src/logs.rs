//! Prints the log files of the daemons to stdout, each line once: a thread for each log, because files and stdout block.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use hostovs::logs::{FileId, FileView, Follower, HEAD, Output, READ_SIZE, Record, Start, Step, View, rank};
use hostovs::units::Daemon;
use telemetry::{Heartbeat, Shutdown};

use crate::metrics::Metrics;

/// How often a log at its end is looked at.
const PERIOD: Duration = Duration::from_millis(200);
/// Of an existing log, on a host where this program never ran.
const FIRST_BYTES: u64 = 1 << 20;

/// Follows the log of one daemon.
pub(crate) struct LogThread {
    pub(crate) daemon: Daemon,
    pub(crate) log_directory: PathBuf,
    pub(crate) state_directory: PathBuf,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) metrics: Metrics,
    pub(crate) shutdown: Shutdown,
}

impl LogThread {
    /// Starts it. It ends by itself at shutdown, after what was written until then.
    pub(crate) fn start(self) -> io::Result<thread::JoinHandle<()>> {
        thread::Builder::new().name(format!("log-{}", self.daemon)).spawn(move || self.run())
    }

    fn run(&self) {
        let record = self.read_record();
        let mut follower = Follower::new(record.as_ref(), Start::Last(FIRST_BYTES));
        let mut files = Files { path: self.log_directory.join(format!("{}.log", self.daemon)), open: None };
        let (mut reported, mut written) = (None, record.map(|record| record.to_string()));
        loop {
            self.heartbeat.beat();
            // Before looking: what was written before the request is printed.
            let is_last = self.shutdown.requested();
            let result = self.turn(&mut follower, &mut files, &mut written);
            let error = result.as_ref().err().map(ToString::to_string);
            if error != reported {
                match &error {
                    Some(error) => {
                        tracing::warn!(daemon = %self.daemon, error, "cannot print the log of Open vSwitch; retrying");
                    }
                    None => tracing::info!(daemon = %self.daemon, "the log of Open vSwitch is printed again"),
                }
                reported = error;
            }
            if !matches!(result, Ok(true)) {
                if is_last {
                    return;
                }
                thread::sleep(PERIOD);
            }
        }
    }

    /// One read, printed and recorded; returns whether there may be more.
    fn turn(&self, follower: &mut Follower, files: &mut Files, written: &mut Option<String>) -> io::Result<bool> {
        let mut out = Vec::new();
        let view = files.view(follower.file())?;
        let step = follower.next(&view, &mut out);
        if let Step::Read { file, offset } = step {
            let mut bytes = vec![0; READ_SIZE];
            let length = files.read(file, offset, &mut bytes)?;
            follower.read(&bytes[..length], &mut out);
        }
        if !out.is_empty() {
            self.print(&out)?;
        }
        let record = follower.record().map(|record| record.to_string());
        if record.is_some() && record != *written {
            self.write_record(record.as_deref().unwrap_or_default())?;
            *written = record;
        }
        Ok(matches!(step, Step::Read { .. }))
    }

    /// One write, so that as little as possible is printed again if the process is killed before it is recorded.
    fn print(&self, out: &[Output]) -> io::Result<()> {
        let (mut text, mut lines, mut gaps) = (Vec::new(), 0, 0);
        for output in out {
            let prefix = match output {
                Output::Line { continued: true, .. } => "+",
                Output::Line { .. } | Output::Gap(_) => "",
            };
            text.extend_from_slice(format!("{}{prefix}|", self.daemon).as_bytes());
            match output {
                Output::Line { text: line, .. } => text.extend_from_slice(line),
                Output::Gap(why) => text.extend_from_slice(format!("ovnkube|WARN|{why}").as_bytes()),
            }
            text.push(b'\n');
            lines += u64::from(matches!(output, Output::Line { .. }));
            gaps += u64::from(matches!(output, Output::Gap(_)));
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(&text)?;
        stdout.flush()?;
        self.metrics.printed(self.daemon.name(), lines, gaps);
        Ok(())
    }

    fn record_file(&self) -> PathBuf {
        self.state_directory.join(format!("{}.position", self.daemon))
    }

    fn read_record(&self) -> Option<Record> {
        let path = self.record_file();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(daemon = %self.daemon, %error, path = %path.display(), "cannot read how far the log was printed; starting near its end");
                return None;
            }
        };
        let record = text.parse();
        record.inspect_err(|error| tracing::warn!(daemon = %self.daemon, %error, path = %path.display(), "cannot use how far the log was printed; starting near its end")).ok()
    }

    fn write_record(&self, text: &str) -> io::Result<()> {
        std::fs::create_dir_all(&self.state_directory)?;
        let (path, new) = (self.record_file(), self.state_directory.join(format!("{}.position.new", self.daemon)));
        std::fs::write(&new, text)?;
        std::fs::rename(&new, &path)
    }
}

/// The files of one log.
struct Files {
    path: PathBuf,
    /// The file that is read.
    open: Option<(FileId, File)>,
}

impl Files {
    /// Looks at the files; the open one last, as [`View`] requires.
    fn view(&self, reading: Option<FileId>) -> io::Result<View> {
        let mut view = View { current: look_at(&self.path)?, ..View::default() };
        let open = self.open.as_ref().filter(|(id, _)| Some(*id) == reading);
        view.rotated = self.rotated()?;
        if let Some((_, file)) = open {
            view.open = Some(look(file)?);
        }
        Ok(view)
    }

    fn rotated(&self) -> io::Result<Vec<FileView>> {
        let (Some(directory), Some(name)) = (self.path.parent(), self.path.file_name().and_then(|name| name.to_str()))
        else {
            return Ok(Vec::new());
        };
        let mut ranked = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let rank = entry.file_name().to_str().and_then(|found| rank(name, found));
            if let Some((rank, view)) = rank.zip(look_at(&entry.path())?) {
                ranked.push((rank, view));
            }
        }
        ranked.sort_by(|(one, _), (other, _)| other.cmp(one));
        Ok(ranked.into_iter().map(|(_, view)| view).collect())
    }

    /// Reads from a file; 0 if it was renamed at this moment.
    fn read(&mut self, id: FileId, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != id) {
            self.open = self.find(id)?.map(|file| (id, file));
        }
        let Some((_, file)) = &self.open else { return Ok(0) };
        let mut length = 0;
        // The follower relies on whole reads.
        while length < bytes.len() {
            match file.read_at(&mut bytes[length..], offset + length as u64) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(length)
    }

    fn find(&self, id: FileId) -> io::Result<Option<File>> {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        for entry in std::fs::read_dir(self.path.parent().unwrap_or(Path::new("/")))? {
            let entry = entry?;
            let found = entry.file_name();
            let is_of_log = found.to_str().is_some_and(|found| found == name || rank(name, found).is_some());
            if is_of_log
                && let Some(file) = open(&entry.path())?
                && identity(&file)? == id
            {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }
}

/// Opens a file; none if it is gone.
fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("cannot open {}: {error}", path.display()))),
    }
}

fn look_at(path: &Path) -> io::Result<Option<FileView>> {
    open(path)?.map(|file| look(&file)).transpose()
}

fn identity(file: &File) -> io::Result<FileId> {
    let metadata = file.metadata()?;
    Ok(FileId { device: metadata.dev(), inode: metadata.ino() })
}

fn look(file: &File) -> io::Result<FileView> {
    let metadata = file.metadata()?;
    let mut head = vec![0; HEAD];
    let length = file.read_at(&mut head, 0)?;
    head.truncate(length);
    Ok(FileView {
        id: FileId { device: metadata.dev(), inode: metadata.ino() },
        size: metadata.size(),
        modified: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
        head,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own for each test, removed at its end.
    struct Directory(PathBuf);

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn append(path: &Path, text: &str) {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn drain(follower: &mut Follower, files: &mut Files) -> Vec<String> {
        let mut out = Vec::new();
        while let Step::Read { file, offset } = {
            let view = files.view(follower.file()).unwrap();
            follower.next(&view, &mut out)
        } {
            let mut bytes = vec![0; READ_SIZE];
            let length = files.read(file, offset, &mut bytes).unwrap();
            follower.read(&bytes[..length], &mut out);
        }
        let text = |output| match output {
            Output::Line { text, .. } => String::from_utf8(text).unwrap(),
            Output::Gap(why) => why,
        };
        out.into_iter().map(text).collect()
    }

    #[test]
    fn real_files_are_followed_over_renames_truncation_deletion_and_a_restart() {
        let directory = Directory(std::env::temp_dir().join(format!("ovnkube-logs-{}", std::process::id())));
        std::fs::create_dir_all(&directory.0).unwrap();
        let path = directory.0.join("x.log");
        let rotated = directory.0.join("x.log.1");
        let line = |number: u32| format!("{number:x<150}");
        let mut files = Files { path: path.clone(), open: None };
        let mut follower = Follower::new(None, Start::Last(FIRST_BYTES));
        assert!(drain(&mut follower, &mut files).is_empty(), "there is no file yet");

        append(&path, &format!("{}\n{}", line(1), &line(2)[..140]));
        assert_eq!(drain(&mut follower, &mut files), [line(1)]);
        // Renamed, continued under its old name, and compressed: the open file is read to its end.
        std::fs::rename(&path, &rotated).unwrap();
        append(&rotated, &format!("{}\n", &line(2)[140..]));
        append(&path, &format!("{}\n", line(3)));
        std::fs::remove_file(&rotated).unwrap();
        assert_eq!(drain(&mut follower, &mut files), [line(2), line(3)]);

        // Rotated while nobody follows.
        let record: Record = follower.record().unwrap().to_string().parse().unwrap();
        append(&path, &format!("{}\n", line(4)));
        std::fs::rename(&path, &rotated).unwrap();
        append(&path, &format!("{}\n", line(5)));
        let mut files = Files { path: path.clone(), open: None };
        let mut follower = Follower::new(Some(&record), Start::Last(FIRST_BYTES));
        assert_eq!(drain(&mut follower, &mut files), [line(4), line(5)]);

        // Copied and truncated.
        append(&path, &format!("{}\n", line(6)));
        std::fs::rename(&rotated, directory.0.join("x.log.2")).unwrap();
        std::fs::copy(&path, &rotated).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        append(&path, &format!("{}\n", line(7)));
        assert_eq!(drain(&mut follower, &mut files), [line(6), line(7)]);
    }
}
