//! A cluster with Prometheus: three control-plane nodes with the databases in pods, and a worker. All times of the rules are
//! divided by [`COMPRESSION`].

use lab::{Databases, GatewayMode, Lab, LabSpec, Ovn};

use crate::common::product;
use crate::watch::{AlertWatch, until};

const COMPRESSION: u32 = 60;
/// The node without databases and controller.
pub(crate) const WORKER: &str = "n4";
/// Targets: a controller, a signer, two databases and an agent on each control-plane node, and the worker's agent.
const TARGETS: usize = 3 * 5 + 1;

/// Open vSwitch 3.5.0 of the node image has known raft bugs.
const ALWAYS_ACTIVE: &str = "OvnkubeDatabaseAdvice";

pub(crate) struct Testbed {
    pub(crate) lab: Lab,
    watch: AlertWatch,
}

impl Testbed {
    /// Returns when all targets are scraped and no alert of a fault is active.
    pub(crate) fn start(purpose: &str) -> Self {
        let ovn = Ovn { databases: Databases::Pods, ..Ovn::default() };
        let spec = LabSpec::for_test(purpose).unwrap().nodes(4).control_planes(3).ovn(ovn);
        let lab = Lab::start(spec.product(product(GatewayMode::Shared)).prometheus(COMPRESSION)).unwrap();
        let bed = Self { watch: AlertWatch::new(lab.prometheus().unwrap()), lab };
        bed.watch.await_targets(TARGETS);
        bed.until("no other alert is active", || {
            bed.watch.prometheus.alerts().unwrap().iter().all(|alert| alert.name() == ALWAYS_ACTIVE)
        });
        bed.watch.restart();
        bed
    }

    pub(crate) fn until(&self, what: &str, done: impl Fn() -> bool) {
        until(what, done);
    }

    /// The value of an expression with one result.
    pub(crate) fn query(&self, expression: &str) -> Option<f64> {
        self.watch.query(expression)
    }

    /// Waits until all of these alerts have fired.
    pub(crate) fn fires(&self, alerts: &[&str]) {
        self.watch.fires(alerts);
    }

    /// Waits until none of these alerts is active.
    pub(crate) fn resolves(&self, alerts: &[&str]) {
        self.watch.resolves(alerts);
    }

    /// Asserts that the faults of this test were those that `coverage` says.
    pub(crate) fn assert_complete(&self, test: &str) {
        self.watch.assert_complete(test);
    }

    /// Runs a script on a machine.
    pub(crate) fn on(&self, machine: &str, script: &str) -> String {
        self.lab.machine(machine).unwrap().run(&["sh", "-c", script]).unwrap()
    }

    /// The pod of an application on a node, as `pod/NAME`.
    pub(crate) fn pod(&self, namespace: &str, app: &str, node: &str) -> String {
        let (label, field) = (format!("app={app}"), format!("spec.nodeName={node}"));
        let args = ["-n", namespace, "get", "pods", "-l", &label, "--field-selector", &field, "-o", "name"];
        self.lab.kubectl(&args).unwrap().trim().to_owned()
    }

    /// Runs a script in a container of ours.
    pub(crate) fn inside(&self, pod: &str, container: &str, script: &str) -> String {
        self.lab.kubectl(&["-n", "ovn-kubernetes", "exec", pod, "-c", container, "--", "sh", "-c", script]).unwrap()
    }

    /// Runs `ovn-nbctl` in the pod of a controller.
    pub(crate) fn nbctl(&self, args: &str) -> String {
        self.inside("ds/ovnkube-master", "ovnkube-controller", &format!("ovn-nbctl --timeout=60 {args}"))
    }

    /// `ovn-sbctl` in a controller's container.
    pub(crate) fn sbctl(&self, args: &str) -> String {
        self.inside("ds/ovnkube-master", "ovnkube-controller", &format!("ovn-sbctl --timeout=60 {args}"))
    }

    /// Creates a pod of the application's image on a node; returns at once.
    pub(crate) fn create_pod(&self, name: &str, node: &str) {
        self.lab
            .apply(&format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, labels: {{app: extra}}}}\n\
                 spec: {{nodeName: {node}, terminationGracePeriodSeconds: 0, containers: [{{name: pause, image: localhost/agnhost:lab, args: [pause]}}]}}\n"
            ))
            .unwrap();
    }

    /// Deletes the pods of [`Testbed::create_pod`].
    pub(crate) fn delete_pods(&self) {
        self.lab.kubectl(&["-n", "shop", "delete", "pods", "-l", "app=extra", "--wait=false"]).unwrap();
    }
}
