//! A machine of the lab: its own network, processes, files and host name over the node image.
//!
//! Its first process is a reaper that waits on a pipe, the *leash*, whose other end only the lab's owner holds. When
//! the owner goes, in whatever way, the pipe closes, the reaper ends, and the kernel ends every process on the
//! machine with it, unmounts its file systems and removes its interfaces. Nothing has to be searched for.

use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use crate::error::{Error, Result, make_dir, write_file};
use crate::namespace::{enter, enter_network, in_own_thread};
use crate::process::ProcessId;
use crate::record::MachineRecord;

/// How long a command may take that says nothing else.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);
/// How long the output of a command may stay open after its limit.
const OUTPUT_GRACE: Duration = Duration::from_secs(15);
/// How long a machine may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(30);

const SYSTEM_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// What a machine is made of.
#[derive(Debug)]
pub(crate) struct Blueprint<'a> {
    /// Its name, which is also its host name.
    pub(crate) name: &'a str,
    /// The node image.
    pub(crate) image: &'a Path,
    /// Its folder on the host, for what it writes.
    pub(crate) dir: PathBuf,
    /// Folders of the host that it sees under the same path.
    pub(crate) shared: Vec<PathBuf>,
    /// Paths on the machine that are kept outside its overlay (container layers cannot lie on an overlay).
    pub(crate) disks: &'a [&'a str],
    /// Whether it sees the host's cgroup tree.
    pub(crate) cgroups: bool,
    /// `/etc/hosts`.
    pub(crate) hosts: &'a str,
}

/// A machine that this process owns: it lives until this value is dropped.
#[derive(Debug)]
pub(crate) struct OwnedMachine {
    init: Child,
}

impl OwnedMachine {
    /// Makes the machine and returns it with the identity of its first process.
    pub(crate) fn start(blueprint: &Blueprint<'_>) -> Result<(Self, ProcessId)> {
        let dir = &blueprint.dir;
        for sub in ["root", "upper/etc", "work", "run"] {
            make_dir(&dir.join(sub))?;
        }
        write_file(&dir.join("upper/etc/hosts"), blueprint.hosts)?;
        write_file(&dir.join("upper/etc/hostname"), format!("{}\n", blueprint.name))?;
        let init = in_own_thread(|| become_machine(blueprint))?;
        let id = ProcessId::of(init.id())
            .ok_or_else(|| Error::Invalid(format!("the first process of machine {} ended at once", blueprint.name)))?;
        let machine = Self { init };
        mount_proc(blueprint.name, id)?;
        Ok((machine, id))
    }

    /// Ends everything on the machine and waits until it is gone. The kernel keeps its first process until whoever started a
    /// command there has asked for its end; one that nobody asks for must not keep the lab.
    pub(crate) fn stop(&mut self) {
        let _ = self.init.kill();
        let handle = ProcessId::of(self.init.id()).and_then(ProcessId::open);
        if handle.is_none_or(|handle| handle.wait(STOP_LIMIT)) {
            let _ = self.init.wait();
        } else {
            eprintln!("the machine of pid {} does not end: a command on it was left alone", self.init.id());
        }
    }
}

impl Drop for OwnedMachine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Turns the calling thread into the machine's first citizen and starts the reaper from it.
fn become_machine(blueprint: &Blueprint<'_>) -> Result<Child> {
    unshare(
        CloneFlags::CLONE_FS
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWPID,
    )
    .map_err(Error::errno("cannot make namespaces"))?;
    // First of all: nothing that is mounted from here on may reach the host.
    attach(None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)?;

    let dir = &blueprint.dir;
    let root = dir.join("root");
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        blueprint.image.display(),
        dir.join("upper").display(),
        dir.join("work").display()
    );
    attach(Some("overlay"), &root, Some("overlay"), MsFlags::empty(), Some(&layers)).map_err(|error| {
        Error::Invalid(format!(
            "{error}; if {} lies on an overlay itself (a container), move it to a disk or tmpfs with {}",
            dir.display(),
            crate::place::STATE_VARIABLE
        ))
    })?;
    attach(Some("sysfs"), &root.join("sys"), Some("sysfs"), MsFlags::empty(), None)?;
    bind(Path::new("/dev"), &root.join("dev"))?;
    if blueprint.cgroups {
        bind(Path::new("/sys/fs/cgroup"), &root.join("sys/fs/cgroup"))?;
    }
    bind(&dir.join("run"), &root.join("run"))?;
    attach(Some("tmpfs"), &root.join("tmp"), Some("tmpfs"), MsFlags::empty(), None)?;
    for shared in &blueprint.shared {
        // Not what is mounted below it: the machine's own root is.
        let target = inside(&root, shared);
        make_dir(&target)?;
        attach(shared.to_str(), &target, None, MsFlags::MS_BIND, None)?;
    }
    for path in blueprint.disks {
        let disk = disk(dir, path);
        make_dir(&disk)?;
        bind(&disk, &inside(&root, Path::new(path)))?;
    }

    nix::unistd::chdir(&root).map_err(Error::errno("cannot enter the machine's root"))?;
    nix::unistd::pivot_root(".", ".").map_err(Error::errno("cannot change to the machine's root"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(Error::errno("cannot let go of the host's root"))?;
    // Containers are mounts within mounts: kubelet wants them to propagate inside the machine.
    attach(None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_SHARED, None)?;
    nix::unistd::sethostname(blueprint.name).map_err(Error::errno("cannot set the host name"))?;

    Command::new("/usr/bin/tini")
        .args(["--", "cat"])
        .env_clear()
        .env("PATH", SYSTEM_PATH)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(Error::io("cannot start the machine's first process (tini of the node image)"))
}

/// Where the host has what a machine keeps outside its overlay.
pub(crate) fn disk(dir: &Path, path: &str) -> PathBuf {
    dir.join("disks").join(path.trim_start_matches('/').replace('/', "-"))
}

/// `/proc` shows the processes of whoever mounts it, so a process of the machine itself has to.
fn mount_proc(name: &str, init: ProcessId) -> Result<()> {
    let record = MachineRecord { name: name.to_owned(), init, addresses: Vec::new() };
    Machine::new(&record, base_environment(None)).run(&["mount", "-t", "proc", "proc", "/proc"]).map(|_| ())
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    make_dir(to)?;
    attach(from.to_str(), to, None, MsFlags::MS_BIND | MsFlags::MS_REC, None)
}

fn attach(source: Option<&str>, target: &Path, kind: Option<&str>, flags: MsFlags, data: Option<&str>) -> Result<()> {
    mount(source, target, kind, flags, data).map_err(Error::errno(format!(
        "cannot mount {} on {}",
        source.or(kind).unwrap_or("a change"),
        target.display()
    )))
}

/// A way into a machine, for its owner and for anyone who read the record.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Its name.
    pub name: String,
    init: ProcessId,
    environment: Vec<(String, String)>,
}

impl Machine {
    pub(crate) fn new(record: &MachineRecord, environment: Vec<(String, String)>) -> Self {
        Self { name: record.name.clone(), init: record.init, environment }
    }

    /// Its first process.
    pub fn init(&self) -> ProcessId {
        self.init
    }

    /// A command that will run on the machine; give it to [`Machine::spawn`].
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Result<Command> {
        let (program, arguments) = words.split_first().ok_or_else(|| Error::Invalid("no command was given".into()))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .current_dir("/")
            .envs(self.environment.iter().map(|(key, value)| (key, value)));
        Ok(command)
    }

    /// Starts a command on the machine. It is a child of this process, and ends with the machine at the latest.
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        let name = command.get_program().to_string_lossy().into_owned();
        enter(self.init, || command.spawn())?.map_err(Error::io(format!("cannot run {name} on {}", self.name)))
    }

    /// Runs a command to its end and returns what it printed; a failure carries what it said on stderr.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        self.run_within(COMMAND_LIMIT, words)
    }

    /// Like [`Machine::run`], for what may take longer than commands usually do.
    pub fn run_within(&self, limit: Duration, words: &[&str]) -> Result<String> {
        let child = self.spawn_bounded(limit, words, Stdio::null())?;
        self.finish(limit, words, &self.wait(limit, words, child)?)
    }

    /// Like [`Machine::run`], with text on its standard input.
    pub fn run_with_input(&self, words: &[&str], input: &str) -> Result<String> {
        let mut child = self.spawn_bounded(COMMAND_LIMIT, words, Stdio::piped())?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read its input is no error.
            let _ = stdin.write_all(input.as_bytes());
        }
        self.finish(COMMAND_LIMIT, words, &self.wait(COMMAND_LIMIT, words, child)?)
    }

    /// Like [`Machine::run`], with a file as its standard input.
    pub(crate) fn run_with_file(&self, words: &[&str], file: File) -> Result<String> {
        let child = self.spawn_bounded(COMMAND_LIMIT, words, file.into())?;
        self.finish(COMMAND_LIMIT, words, &self.wait(COMMAND_LIMIT, words, child)?)
    }

    /// Runs a command to its end, whatever its exit status.
    pub fn output(&self, words: &[&str]) -> Result<Output> {
        let child = self.spawn_bounded(COMMAND_LIMIT, words, Stdio::null())?;
        self.wait(COMMAND_LIMIT, words, child)
    }

    fn spawn_bounded(&self, limit: Duration, words: &[&str], stdin: Stdio) -> Result<Child> {
        // A command that hangs must not hang the lab: coreutils' timeout ends it and says so by status 124.
        let seconds = limit.as_secs().to_string();
        let bounded = [&["timeout", "--kill-after=5", &seconds], words].concat();
        let mut command = self.command(&bounded)?;
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.spawn(&mut command)
    }

    /// Waits for the end of a command and of what it prints. Something that it left behind may hold its output for ever, so
    /// that is waited for in a thread of its own, which goes with the machine at the latest.
    fn wait(&self, limit: Duration, words: &[&str], child: Child) -> Result<Output> {
        let doing = format!("cannot wait for {} on {}", words.join(" "), self.name);
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("lab-command".into())
            .spawn(move || answer.send(child.wait_with_output()))
            .map_err(Error::io(doing.clone()))?;
        let output = answered.recv_timeout(limit + OUTPUT_GRACE).map_err(|_| Error::Command {
            command: words.join(" "),
            place: self.name.clone(),
            status: format!("its output did not end within {} s", (limit + OUTPUT_GRACE).as_secs()),
            stderr: "something that it started still holds it".into(),
        })?;
        output.map_err(Error::io(doing))
    }

    fn finish(&self, limit: Duration, words: &[&str], output: &Output) -> Result<String> {
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
        Err(Error::Command {
            command: words.join(" "),
            place: self.name.clone(),
            status: if output.status.code() == Some(124) {
                format!("no end after {} s", limit.as_secs())
            } else {
                output.status.to_string()
            },
            stderr: String::from_utf8_lossy(said).trim().replace('\n', "; "),
        })
    }

    /// The file that stands for the machine's network.
    pub(crate) fn network(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.init.pid))
    }

    /// Runs a piece of this program with the machine's network: sockets that it opens live there.
    pub fn with_network<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        enter_network(&self.network(), work)
    }

    /// Opens a TCP connection from the machine: the socket lives in its network, the caller holds it.
    pub fn connect(&self, target: SocketAddr, limit: Duration) -> Result<TcpStream> {
        self.with_network(|| TcpStream::connect_timeout(&target, limit))?
            .map_err(Error::io(format!("cannot connect from {} to {target}", self.name)))
    }
}

/// The environment of every program on a machine.
pub(crate) fn base_environment(kubernetes: Option<&Path>) -> Vec<(String, String)> {
    let path = kubernetes.map_or_else(|| SYSTEM_PATH.to_owned(), |bin| format!("{SYSTEM_PATH}:{}", bin.display()));
    vec![("PATH".into(), path), ("HOME".into(), "/root".into()), ("LANG".into(), "C.UTF-8".into())]
}
