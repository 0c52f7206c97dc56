//! A sandbox as a container runtime creates it, and CNI requests for it.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use lab::Machine;
use serde_json::{Value, json};

use crate::cluster::until;
use crate::site::{Site, configuration};

/// Limit of a request.
const TIMEOUT: Duration = Duration::from_secs(150);
const SOCKET: &str = "/run/ovn-kubernetes/cni/ovn-cni-server.sock";

pub(crate) struct Sandbox {
    pub(crate) name: String,
    pod: String,
    pub(crate) uid: String,
    machine: Machine,
    socket: PathBuf,
}

/// The plugin's output: a result or an error.
pub(crate) type Outcome = Result<Value, Value>;

fn read(good: bool, text: &str) -> Outcome {
    let value =
        if text.is_empty() { Value::Null } else { serde_json::from_str(text).unwrap_or_else(|_| panic!("{text:?}")) };
    if good { Ok(value) } else { Err(value) }
}

/// A request without a sandbox, by the plugin's code and the agent's socket.
pub(crate) fn request(site: &Site, node: u32, command: &str, more: &Value) -> Outcome {
    let variables = [("CNI_COMMAND".into(), command.into())];
    let config = configuration("1.1.0", more);
    let outcome = cni_shim::run(variables.into_iter(), config.as_bytes(), &site.path(node, SOCKET), TIMEOUT);
    read(outcome.success, &outcome.output)
}

impl Sandbox {
    /// Creates the network namespace.
    pub(crate) fn create(site: &Site, node: u32, name: &str, pod: &str, uid: &str) -> Self {
        let sandbox = Self::without_namespace(site, node, name, pod, uid);
        sandbox.machine.run(&["ip", "netns", "add", name]).unwrap();
        sandbox
    }

    pub(crate) fn without_namespace(site: &Site, node: u32, name: &str, pod: &str, uid: &str) -> Self {
        Self {
            name: name.to_owned(),
            pod: pod.to_owned(),
            uid: uid.to_owned(),
            machine: site.machine(node),
            socket: site.path(node, SOCKET),
        }
    }

    fn variables(&self, command: &str) -> Vec<(OsString, OsString)> {
        let Self { name, pod, uid, .. } = self;
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod};K8S_POD_INFRA_CONTAINER_ID={name};K8S_POD_UID={uid}"
        );
        let path = format!("/run/netns/{name}");
        let pairs = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", name),
            ("CNI_NETNS", &path),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", &args),
            ("CNI_PATH", "/opt/cni/bin"),
        ];
        pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
    }

    /// A request by the plugin's code and the agent's socket.
    pub(crate) fn ask(&self, command: &str) -> Outcome {
        let config = configuration("1.0.0", &json!({}));
        let outcome = cni_shim::run(self.variables(command).into_iter(), config.as_bytes(), &self.socket, TIMEOUT);
        read(outcome.success, &outcome.output)
    }

    /// A request by the installed plugin, optionally as another user.
    pub(crate) fn run_plugin(&self, command: &str, config: &str, user: Option<u32>) -> Outcome {
        self.run_plugin_with(command, &[], config, user)
    }

    /// Like [`Self::run_plugin`], with other or additional variables.
    pub(crate) fn run_plugin_with(
        &self,
        command: &str,
        variables: &[(&str, &str)],
        config: &str,
        user: Option<u32>,
    ) -> Outcome {
        let mut plugin = self.machine.command(&["/opt/cni/bin/ovn-k8s-cni-overlay"]).unwrap();
        plugin
            .envs(self.variables(command))
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(user) = user {
            plugin.uid(user).gid(user);
        }
        let mut child = self.machine.spawn(&mut plugin).unwrap();
        // A plugin that ends before it reads stdin reports that on stdout.
        let _ = child.stdin.take().unwrap().write_all(config.as_bytes());
        let output = child.wait_with_output().unwrap();
        read(output.status.success(), &String::from_utf8(output.stdout).unwrap())
    }

    pub(crate) fn add(&self) -> Value {
        self.ask("ADD").unwrap_or_else(|error| panic!("ADD of {}: {error}", self.name))
    }

    pub(crate) fn delete(&self) {
        self.ask("DEL").unwrap_or_else(|error| panic!("DEL of {}: {error}", self.name));
    }

    /// Deletes the network namespace.
    pub(crate) fn destroy(&self) {
        self.machine.run(&["ip", "netns", "del", &self.name]).unwrap();
    }

    /// Runs a command in the sandbox's network namespace.
    pub(crate) fn run(&self, words: &[&str]) -> String {
        let all = [&["ip", "netns", "exec", self.name.as_str()], words].concat();
        self.machine.run(&all).unwrap()
    }

    /// Runs a function in the sandbox's network namespace.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        node::kernel::namespace::within(&self.network(), work).unwrap()
    }

    /// The network namespace's file in this process' file system.
    pub(crate) fn network(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root/run/netns/{}", self.machine.init().pid, self.name))
    }

    /// Waits until the sandbox reaches an address.
    pub(crate) fn reaches(&self, address: IpAddr) {
        let text = address.to_string();
        until(&format!("{} reaches {text}", self.name), || {
            let words = ["ip", "netns", "exec", self.name.as_str(), "ping", "-c1", "-W1", &text];
            self.machine.run(&words).ok()
        });
    }

    /// Sends 20,000 bytes to another sandbox over TCP, and back.
    pub(crate) fn talks_to(&self, other: &Self, address: IpAddr) {
        let listener = other.within(|| TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8080))).unwrap());
        let page: Vec<u8> = (0..20_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let target = SocketAddr::new(address, 8080);
        let limited = |stream: TcpStream| {
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
            stream
        };
        let mut stream = limited(self.within(|| TcpStream::connect_timeout(&target, Duration::from_secs(20)).unwrap()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The connection is already established.
                let mut stream = limited(listener.accept().unwrap().0);
                std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
            });
            stream.write_all(&page).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut back = Vec::new();
            std::io::Read::read_to_end(&mut stream, &mut back).unwrap();
            assert_eq!(back, page);
        });
    }
}

/// The addresses in a result of ADD.
pub(crate) fn addresses(answer: &Value) -> Vec<IpAddr> {
    let ips = answer["ips"].as_array().unwrap().iter();
    ips.map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap()).collect()
}
