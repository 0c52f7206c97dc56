use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use lab::{Databases, Family, GatewayMode, Lab, LabSpec, Ovn, Product};

/// Builds the image's binaries once per test process.
fn binaries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let built = Command::new(root.join("deploy/image/build.sh")).env("CARGO", env!("CARGO")).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        root.join("target/image")
    })
}

/// ovnkube, built from this tree.
pub(crate) fn product(gateway: GatewayMode) -> Product {
    Product { binaries: binaries().to_owned(), gateway }
}

/// Scales the example application; new pods are ready when their kubelet reaches them.
pub(crate) fn scale_application(lab: &Lab, replicas: u32) {
    let replicas = format!("--replicas={replicas}");
    lab.kubectl(&["-n", "shop", "scale", "deployment/web", &replicas]).unwrap();
    let status = ["kubectl", "-n", "shop", "rollout", "status", "deployment/web", "--timeout=170s"];
    lab.machine("control").unwrap().run_within(Duration::from_secs(180), &status).unwrap();
}

/// Two nodes with ovnkube, CoreDNS and the example application; returns when all of it is ready.
pub(crate) fn cluster(purpose: &str, family: Family, gateway: GatewayMode) -> Lab {
    cluster_of(2, purpose, family, gateway, Databases::Standalone)
}

/// Like [`cluster`], with this number of nodes and this kind of databases.
pub(crate) fn cluster_of(nodes: u32, purpose: &str, family: Family, gateway: GatewayMode, databases: Databases) -> Lab {
    // With mutual TLS, as in `make up` and the manifests.
    let ovn = Ovn { databases, ..Ovn::default() };
    assert!(ovn.tls);
    let spec = LabSpec::for_test(purpose).unwrap().nodes(nodes).family(family).ovn(ovn).product(product(gateway));
    Lab::start(spec).unwrap()
}
