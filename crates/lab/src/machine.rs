//! A machine of the lab: separate network, process, mount and UTS namespaces over the node image.
//!
//! Its first process (tini) waits on a pipe whose write end only the lab's owner holds. When the owner exits, for any
//! reason, the pipe closes, the first process exits, and the kernel kills every process on the machine, unmounts its
//! file systems and removes its interfaces. No cleanup has to search for anything.

use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use crate::error::{Error, Result, create_dir, write_file};
use crate::namespace::{enter, enter_network, in_own_thread};
use crate::process::ProcessId;
use crate::record::MachineRecord;

/// Default time limit of a command.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);
/// How long the output of a command may stay open after its time limit.
const OUTPUT_GRACE: Duration = Duration::from_secs(15);
/// How long a machine may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(30);

const SYSTEM_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Debug)]
pub(crate) struct MachineConfig<'a> {
    /// Also the host name.
    pub(crate) name: &'a str,
    pub(crate) image: &'a Path,
    /// On the host, for what the machine writes.
    pub(crate) dir: PathBuf,
    /// Directories of the host, mounted at the same path.
    pub(crate) shared: Vec<PathBuf>,
    /// Paths that are not on the overlay: container layers cannot be stacked on an overlay.
    pub(crate) disks: &'a [&'a str],
    /// Whether the host's cgroup tree is mounted.
    pub(crate) cgroups: bool,
    /// Content of `/etc/hosts`.
    pub(crate) hosts: &'a str,
    /// Content of `/etc/resolv.conf`.
    pub(crate) resolver: &'a str,
}

/// A machine that this process owns: it is stopped on drop.
#[derive(Debug)]
pub(crate) struct OwnedMachine {
    init: Child,
}

impl OwnedMachine {
    /// Creates the machine and returns it with its first process.
    pub(crate) fn start(config: &MachineConfig<'_>) -> Result<(Self, ProcessId)> {
        let dir = &config.dir;
        for sub in ["root", "upper/etc", "work", "run"] {
            create_dir(&dir.join(sub))?;
        }
        write_file(&dir.join("upper/etc/hosts"), config.hosts)?;
        write_file(&dir.join("upper/etc/resolv.conf"), config.resolver)?;
        write_file(&dir.join("upper/etc/hostname"), format!("{}\n", config.name))?;
        let init = in_own_thread(|| start_init(config))?;
        let id = ProcessId::of(init.id()).ok_or_else(|| {
            Error::Invalid(format!("the first process of machine {} exited immediately", config.name))
        })?;
        let machine = Self { init };
        mount_proc(config.name, id)?;
        Ok((machine, id))
    }

    /// Kills everything on the machine and waits until it is gone. The kernel keeps the first process until every
    /// command that was started there has been waited for, so the wait has a limit.
    pub(crate) fn stop(&mut self) {
        let _ = self.init.kill();
        let handle = ProcessId::of(self.init.id()).and_then(ProcessId::open);
        if handle.is_none_or(|handle| handle.wait(STOP_LIMIT)) {
            let _ = self.init.wait();
        } else {
            eprintln!("machine with pid {} does not stop: a command on it was never waited for", self.init.id());
        }
    }
}

impl Drop for OwnedMachine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Moves the calling thread into new namespaces, builds the machine's root and starts its first process.
fn start_init(config: &MachineConfig<'_>) -> Result<Child> {
    unshare(
        CloneFlags::CLONE_FS
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWPID,
    )
    .map_err(Error::errno("cannot create namespaces"))?;
    // First: no mount from here on may propagate to the host.
    mount_at(None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)?;

    let dir = &config.dir;
    let root = dir.join("root");
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        config.image.display(),
        dir.join("upper").display(),
        dir.join("work").display()
    );
    mount_at(Some("overlay"), &root, Some("overlay"), MsFlags::empty(), Some(&layers)).map_err(|error| {
        Error::Invalid(format!(
            "{error}; if {} is on an overlay itself (a container), move it to a disk or tmpfs with {}",
            dir.display(),
            crate::directories::STATE_VARIABLE
        ))
    })?;
    mount_at(Some("sysfs"), &root.join("sys"), Some("sysfs"), MsFlags::empty(), None)?;
    bind(Path::new("/dev"), &root.join("dev"))?;
    if config.cgroups {
        bind(Path::new("/sys/fs/cgroup"), &root.join("sys/fs/cgroup"))?;
    }
    bind(&dir.join("run"), &root.join("run"))?;
    mount_at(Some("tmpfs"), &root.join("tmp"), Some("tmpfs"), MsFlags::empty(), None)?;
    for shared in &config.shared {
        // Not recursive: the machine's own root is mounted below it.
        let target = inside(&root, shared);
        create_dir(&target)?;
        mount_at(shared.to_str(), &target, None, MsFlags::MS_BIND, None)?;
    }
    for path in config.disks {
        let disk = disk_dir(dir, path);
        create_dir(&disk)?;
        bind(&disk, &inside(&root, Path::new(path)))?;
    }

    nix::unistd::chdir(&root).map_err(Error::errno("cannot enter the machine's root"))?;
    nix::unistd::pivot_root(".", ".").map_err(Error::errno("cannot change to the machine's root"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(Error::errno("cannot unmount the host's root"))?;
    // Container mounts must propagate inside the machine, for kubelet.
    mount_at(None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_SHARED, None)?;
    nix::unistd::sethostname(config.name).map_err(Error::errno("cannot set the host name"))?;

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

/// The host directory of a path that is not on the overlay.
pub(crate) fn disk_dir(dir: &Path, path: &str) -> PathBuf {
    dir.join("disks").join(path.trim_start_matches('/').replace('/', "-"))
}

/// `/proc` shows the PID namespace of the process that mounts it, so a process of the machine must.
fn mount_proc(name: &str, init: ProcessId) -> Result<()> {
    let record = MachineRecord { name: name.to_owned(), init, addresses: Vec::new() };
    Machine::new(&record, base_environment(None)).run(&["mount", "-t", "proc", "proc", "/proc"]).map(|_| ())
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    create_dir(to)?;
    mount_at(from.to_str(), to, None, MsFlags::MS_BIND | MsFlags::MS_REC, None)
}

fn mount_at(source: Option<&str>, target: &Path, kind: Option<&str>, flags: MsFlags, data: Option<&str>) -> Result<()> {
    mount(source, target, kind, flags, data).map_err(Error::errno(format!(
        "cannot mount {} on {}",
        source.or(kind).unwrap_or("a change"),
        target.display()
    )))
}

/// Runs commands on a machine. Works for its owner and for any process that has read the record.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Also the host name.
    pub name: String,
    init: ProcessId,
    environment: Vec<(String, String)>,
}

impl Machine {
    pub(crate) fn new(record: &MachineRecord, environment: Vec<(String, String)>) -> Self {
        Self { name: record.name.clone(), init: record.init, environment }
    }

    /// The process whose namespaces are the machine's.
    pub fn init(&self) -> ProcessId {
        self.init
    }

    /// A command for [`Machine::spawn`], with the machine's environment.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Result<Command> {
        let (program, arguments) = args.split_first().ok_or_else(|| Error::Invalid("no command given".into()))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .current_dir("/")
            .envs(self.environment.iter().map(|(key, value)| (key, value)));
        Ok(command)
    }

    /// Starts a command on the machine. It is a child of this process and exits with the machine at the latest.
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        let name = command.get_program().to_string_lossy().into_owned();
        enter(self.init, || command.spawn())?.map_err(Error::io(format!("cannot run {name} on {}", self.name)))
    }

    /// Runs a command and returns its output; an error contains its stderr. The time limit is two minutes.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        self.run_within(COMMAND_LIMIT, args)
    }

    /// Like [`Machine::run`], with another time limit.
    pub fn run_within(&self, limit: Duration, args: &[&str]) -> Result<String> {
        let child = self.spawn_bounded(limit, args, Stdio::null())?;
        self.finish(limit, args, &self.wait(limit, args, child)?)
    }

    /// Like [`Machine::run`], with text on standard input.
    pub fn run_with_input(&self, args: &[&str], input: &str) -> Result<String> {
        let mut child = self.spawn_bounded(COMMAND_LIMIT, args, Stdio::piped())?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command may ignore its input.
            let _ = stdin.write_all(input.as_bytes());
        }
        self.finish(COMMAND_LIMIT, args, &self.wait(COMMAND_LIMIT, args, child)?)
    }

    /// Like [`Machine::run`], with a file as standard input.
    pub(crate) fn run_with_file(&self, args: &[&str], file: File) -> Result<String> {
        let child = self.spawn_bounded(COMMAND_LIMIT, args, file.into())?;
        self.finish(COMMAND_LIMIT, args, &self.wait(COMMAND_LIMIT, args, child)?)
    }

    /// Runs a command and returns its output, whatever its exit status.
    pub fn output(&self, args: &[&str]) -> Result<Output> {
        let child = self.spawn_bounded(COMMAND_LIMIT, args, Stdio::null())?;
        self.wait(COMMAND_LIMIT, args, child)
    }

    fn spawn_bounded(&self, limit: Duration, args: &[&str], stdin: Stdio) -> Result<Child> {
        // A command that hangs must not block the lab: coreutils' timeout kills it and exits with status 124.
        let seconds = limit.as_secs().to_string();
        let bounded = [&["timeout", "--kill-after=5", &seconds], args].concat();
        let mut command = self.command(&bounded)?;
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.spawn(&mut command)
    }

    /// Waits for a command and its output. A background process may keep the output open forever, so a separate thread
    /// waits; it ends with the machine at the latest.
    fn wait(&self, limit: Duration, args: &[&str], child: Child) -> Result<Output> {
        let context = format!("cannot wait for {} on {}", args.join(" "), self.name);
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("lab-command".into())
            .spawn(move || answer.send(child.wait_with_output()))
            .map_err(Error::io(context.clone()))?;
        let output = answered.recv_timeout(limit + OUTPUT_GRACE).map_err(|_| Error::Command {
            command: args.join(" "),
            machine: self.name.clone(),
            status: format!("its output did not end within {} s", (limit + OUTPUT_GRACE).as_secs()),
            stderr: "a process that it started keeps it open".into(),
        })?;
        output.map_err(Error::io(context))
    }

    fn finish(&self, limit: Duration, args: &[&str], output: &Output) -> Result<String> {
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let text = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
        Err(Error::Command {
            command: args.join(" "),
            machine: self.name.clone(),
            status: if output.status.code() == Some(124) {
                format!("killed after {} s", limit.as_secs())
            } else {
                output.status.to_string()
            },
            stderr: String::from_utf8_lossy(text).trim().replace('\n', "; "),
        })
    }

    /// The file of the machine's network namespace.
    pub(crate) fn network(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.init.pid))
    }

    /// Runs a closure in the machine's network namespace: sockets that it opens belong to it. See `namespace::enter`.
    pub fn with_network<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        enter_network(&self.network(), work)
    }

    /// Opens a TCP connection from the machine's network namespace.
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
