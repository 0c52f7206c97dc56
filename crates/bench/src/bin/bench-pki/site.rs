//! A lab with an API server, a signer, a southbound server, and this program in the place of kubelet.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use kubernetes::Api;
use lab::{Kubernetes, Lab, LabSpec, Machine, Program};
use ovsdb::client::{Client, Config, TableMonitor, TlsFiles};
use serde_json::{Value, json};

/// Limit of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
/// How long a new CA is published before it signs.
pub(crate) const DELAY: Duration = Duration::from_secs(8);
pub(crate) const NAMESPACE: &str = "/api/v1/namespaces/ovn-kubernetes";
const SOCKET: &str = "/run/ovn/sb.sock";

/// How a client reaches the southbound server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tls,
    Plain,
}

impl Transport {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tls => "TLS",
            Self::Plain => "TCP",
        }
    }

    fn remote(self) -> &'static str {
        match self {
            Self::Tls => "ssl:127.0.0.1:6642",
            Self::Plain => "tcp:127.0.0.1:6640",
        }
    }
}

pub(crate) struct Site {
    pub(crate) lab: Lab,
    kubeconfig: PathBuf,
    directory: PathBuf,
}

impl Site {
    /// Starts API server and signer, waits for the first certificate, and starts the southbound server with it.
    pub(crate) fn start() -> Result<Self> {
        eprintln!("a lab with an API server, a signer and a southbound server");
        let lab = Lab::start(LabSpec::for_test("bench-pki")?.kubernetes(Kubernetes::default()))?;
        let kubeconfig = lab.record().endpoints.machine_kubeconfig.context("the lab has no API server")?;
        let directory = lab::directories::Directories::from_environment()?.lab(lab.name()).join("pki/ovn");
        std::fs::create_dir_all(&directory)?;
        let site = Self { lab, kubeconfig, directory };
        site.inside(async |api| {
            let namespace = json!({ "metadata": { "name": "ovn-kubernetes" } });
            api.post("/api/v1/namespaces", namespace.to_string().into_bytes()).await.map(drop).map_err(Into::into)
        })?;
        site.serve_signer("signer")?;
        site.inside(async |api| {
            let deadline = tokio::time::Instant::now() + TIMEOUT;
            while tokio::time::Instant::now() < deadline {
                if site.copy_files(&api).await.is_ok() {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            bail!("the signer has issued no certificate within {TIMEOUT:?}: {:?}", site.lab.log("signer"))
        })?;
        site.serve_southbound()?;
        Ok(site)
    }

    /// Starts a signer of the release build; several compete for one Lease.
    pub(crate) fn serve_signer(&self, name: &str) -> Result<()> {
        let delay = format!("{}s", DELAY.as_secs());
        let program = Program::new(name, ovnkube()?)
            .arguments(["pki", "serve", "--identity", name, "--distribution-delay", &delay])
            .arguments(["--metrics-bind-address", "off"]);
        Ok(self.lab.run(&program)?)
    }

    fn serve_southbound(&self) -> Result<()> {
        let control = self.control()?;
        control.run(&["mkdir", "-p", "/var/lib/ovn", "/run/ovn"])?;
        control.run(&["ovsdb-tool", "create", "/var/lib/ovn/sb.db", "/usr/share/ovn/ovn-sb.ovsschema"])?;
        let TlsFiles { certificate, private_key, authorities, .. } = self.tls();
        let program = Program::new("sb", "ovsdb-server")
            .arguments(["-vconsole:warn", "-vsyslog:off", "-vfile:off", "--unixctl=/run/ovn/sb.ctl"])
            .arguments([format!("--remote=punix:{SOCKET}")])
            .arguments(["--remote=pssl:6642:127.0.0.1", "--remote=ptcp:6640:127.0.0.1"])
            .arguments([format!("--private-key={}", private_key.display())])
            .arguments([format!("--certificate={}", certificate.display())])
            .arguments([format!("--ca-cert={}", authorities.display()), "/var/lib/ovn/sb.db".to_owned()]);
        self.lab.run(&program)?;
        let database = format!("--db=unix:{SOCKET}");
        lab::poll(TIMEOUT, || control.run(&["ovn-sbctl", "--timeout=10", &database, "init"]))?;
        Ok(())
    }

    pub(crate) fn control(&self) -> Result<Machine> {
        Ok(self.lab.machine("control")?)
    }

    pub(crate) fn pid(&self, component: &str) -> Result<u32> {
        Ok(self.lab.record().component(component)?.process.pid)
    }

    pub(crate) fn cpu(&self, component: &str) -> Result<f64> {
        Ok(bench::process_cpu_seconds(self.pid(component)?)?)
    }

    /// Runs something in the network of the machine of all servers.
    pub(crate) fn inside<T: Send>(&self, work: impl AsyncFnOnce(Api) -> Result<T> + Send) -> Result<T> {
        self.control()?.with_network(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async { work(Api::from_kubeconfig(Some(&self.kubeconfig), None).await?).await })
        })?
    }

    pub(crate) fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    pub(crate) fn tls(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.directory.join("ovn.crt"),
            private_key: self.directory.join("ovn.key"),
            authorities: self.directory.join("ca.crt"),
            verify_host_name: false,
        }
    }

    /// A session with the southbound server, in a runtime.
    pub(crate) fn connect(&self, transport: Transport) -> Result<Client> {
        Self::session(transport.remote(), self.tls())
    }

    /// A session with a server, in a runtime.
    pub(crate) fn session(remote: &str, tls: TlsFiles) -> Result<Client> {
        let mut config = Config::new(vec![remote.parse()?], "OVN_Southbound")
            .monitor(TableMonitor::new("SB_Global").columns(&["nb_cfg"]));
        config.leader_only = false;
        config.tls = Some(tls);
        // Hundreds of handshakes wait for one server.
        config.connect_timeout = TIMEOUT;
        Ok(Client::start(config))
    }

    /// Copies the certificate and the trusted CAs to files, as kubelet does; returns both.
    pub(crate) async fn copy_files(&self, api: &Api) -> Result<Published> {
        let leaf = get(api, "secrets/ovn-cert").await?;
        let bundle = get(api, "configmaps/ovn-ca").await?;
        let secret = |key: &str| -> Result<String> {
            Ok(String::from_utf8(BASE64.decode(leaf["data"][key].as_str().context("no certificate yet")?)?)?)
        };
        let published = Published {
            certificate: secret("tls.crt")?,
            authorities: bundle["data"]["ca-bundle.crt"].as_str().context("no trusted CA yet")?.to_owned(),
        };
        let files =
            [("ca.crt", &published.authorities), ("ovn.key", &secret("tls.key")?), ("ovn.crt", &published.certificate)];
        for (file, content) in files {
            let path = self.directory.join(file);
            if std::fs::read_to_string(&path).ok().as_ref() != Some(content) {
                let draft = self.directory.join("draft");
                std::fs::write(&draft, content)?;
                std::fs::rename(&draft, &path)?;
            }
        }
        Ok(published)
    }

    /// Whether the southbound server shows this certificate to new clients.
    pub(crate) fn shows(&self, certificate: &str) -> Result<bool> {
        let show = "echo | timeout 10 openssl s_client -connect 127.0.0.1:6642 2>/dev/null | openssl x509";
        Ok(self.control()?.run(&["sh", "-c", show]).is_ok_and(|shown| shown.trim() == certificate.trim()))
    }
}

/// What the signer has published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) certificate: String,
    pub(crate) authorities: String,
}

pub(crate) async fn get(api: &Api, object: &str) -> Result<Value> {
    Ok(serde_json::from_slice(&api.get(&format!("{NAMESPACE}/{object}")).await?)?)
}

/// The release build next to this program.
pub(crate) fn ovnkube() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("ovnkube");
    if !program.exists() {
        bail!("{} not found: run `make bench-pki`, which builds it", program.display());
    }
    Ok(program)
}
