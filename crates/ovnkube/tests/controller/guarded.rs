//! A guarded namespace: its policy allows ingress from friends only and no egress, and a prober measures it.

use std::cell::RefCell;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use lab::Pod;
use serde_json::{Value, json};

use crate::cluster::{Cluster, until};
use crate::pod_mesh::{labelled_pod, namespace, policy};
use crate::prober::{Moment, PathId, Prober};

pub(crate) fn addresses(cluster: &Cluster, namespace: &str, name: &str) -> Vec<IpAddr> {
    cluster.network_of(namespace, name).addresses.iter().map(|own| own.address()).collect()
}

/// Creates a pod and connects it.
pub(crate) fn connect_pod(cluster: &Cluster, namespace: &str, name: &str, node: u32, labels: &Value) -> Pod {
    cluster.apply_all(&[labelled_pod(namespace, name, &format!("n{node}"), labels, &json!([]))]);
    cluster.bind(node, namespace, name)
}

/// Waits until all rows are flows of the nodes, and the datapaths' cached flows were revalidated.
pub(crate) fn wait_flows(cluster: &Cluster) {
    cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    for node in 1..=cluster.lab.record().spec.nodes {
        cluster.lab.node(node).unwrap().run(&["ovs-appctl", "revalidator/wait"]).unwrap();
    }
}

/// Waits until a policy has ACLs, or has none, and until the flows follow.
pub(crate) fn wait_policy(cluster: &Cluster, name: &str, there: bool) {
    until(&format!("{name} has rules: {there}"), || {
        let ids = cluster.column("ACL", "external_ids");
        (ids.iter().any(|ids| ids.split(' ').any(|one| one == format!("k8s.ovn.org/name={name}"))) == there)
            .then_some(())
    });
    wait_flows(cluster);
}

/// The policy of namespace shop: ingress from friends, egress only within the namespace.
pub(crate) fn guard(name: &str, more: &Value) -> Value {
    let mut from = json!([{"podSelector": {"matchLabels": {"app": "friend"}}}]);
    from.as_array_mut().unwrap().extend(more.as_array().unwrap().iter().cloned());
    let own = json!([{"podSelector": {}}]);
    policy(
        "shop",
        name,
        &json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{"from": from}], "egress": [{"to": own}]}),
    )
}

/// Limit of control windows per change.
const CONTROLS: usize = 5;
/// ovs-vswitchd still reconfigures when the command that changed a port has returned.
const AFTER_PORT_CHANGE: Duration = Duration::from_millis(50);

/// A cluster with a guarded namespace under the prober.
pub(crate) struct GuardedNamespace {
    pub(crate) cluster: Cluster,
    pub(crate) prober: Prober,
    /// Paths of strangers, denied since the guard policy is in effect.
    pub(crate) forbidden: Vec<PathId>,
    /// Paths of friends.
    pub(crate) allowed: Vec<PathId>,
    /// Paths between the same nodes that no policy affects.
    unaffected: Vec<PathId>,
    /// A friend's pod.
    pub(crate) friend: Pod,
    /// When the guard policy took effect.
    pub(crate) since: Moment,
    /// Losses on allowed paths, by change.
    pub(crate) losses: Vec<String>,
    /// Begin and end of each change of a switch's ports.
    port_changes: RefCell<Vec<(Instant, Instant)>>,
}

impl GuardedNamespace {
    /// Expects two nodes and a leading controller. Checks that all paths are open before the policy is applied.
    pub(crate) fn on(cluster: Cluster) -> Self {
        cluster.apply_all(&[namespace("shop", &json!({"team": "blue"})), namespace("yard", &json!({"team": "red"}))]);
        let web = connect_pod(&cluster, "shop", "web", 1, &json!({"app": "web"}));
        let friend = connect_pod(&cluster, "shop", "friend", 2, &json!({"app": "friend"}));
        let near = connect_pod(&cluster, "yard", "near", 1, &json!({"app": "stranger"}));
        let far = connect_pod(&cluster, "yard", "far", 2, &json!({"app": "stranger"}));
        wait_flows(&cluster);
        let prober = Prober::default();
        for pod in [&web, &near, &far] {
            prober.listen(pod);
        }
        let mut paths = [Vec::new(), Vec::new(), Vec::new()];
        for (from, to, kind) in [
            (&near, ("shop", "web"), 0),
            (&far, ("shop", "web"), 0),
            (&web, ("yard", "near"), 0),
            (&web, ("yard", "far"), 0),
            (&friend, ("shop", "web"), 1),
            (&far, ("yard", "near"), 2),
        ] {
            for address in addresses(&cluster, to.0, to.1) {
                paths[kind].push(prober.send(from, address));
            }
        }
        let [forbidden, allowed, unaffected] = paths;
        prober.wait_open(&[forbidden.as_slice(), &allowed, &unaffected].concat());
        cluster.apply(&guard("guard", &json!([])));
        wait_policy(&cluster, "shop/guard", true);
        let since = prober.wait_closed(&forbidden);
        prober.wait_open(&allowed);
        Self {
            cluster,
            prober,
            forbidden,
            allowed,
            unaffected,
            since,
            losses: Vec::new(),
            port_changes: RefCell::default(),
            friend,
        }
    }

    /// One change: denied paths stay closed, and allowed paths lose no more than in a control window of the same length
    /// without a change. A busy machine loses packets sometimes, so up to [`CONTROLS`] windows are measured if the first
    /// loses less than the change did.
    ///
    /// Losses at the same time on unaffected paths do not count, nor those while [`Self::during_port_change`] runs.
    pub(crate) fn during(&mut self, what: &str, change: impl FnOnce(&Self)) {
        self.port_changes.borrow_mut().clear();
        let (begin, began) = (self.prober.now(), Instant::now());
        change(self);
        wait_flows(&self.cluster);
        self.prober.assert_nothing_passed(what, &self.forbidden, &self.since);
        self.prober.wait_open(&[self.allowed.as_slice(), &self.unaffected].concat());
        let lost = self.lost_alone(&begin);
        let length = began.elapsed();
        println!("{what}: {length:?}, lost {lost:?}");
        let mut control = vec![0; lost.len()];
        for _ in 0..CONTROLS {
            if lost.iter().zip(&control).all(|(lost, control)| lost <= control) {
                break;
            }
            let begin = self.prober.now();
            std::thread::sleep(length);
            self.prober.wait_open(&[self.allowed.as_slice(), &self.unaffected].concat());
            control = control.into_iter().zip(self.lost_alone(&begin)).map(|(most, one)| most.max(one)).collect();
        }
        for ((path, lost), control) in self.allowed.iter().zip(lost).zip(control) {
            let said = format!("{what}: {lost} lost from {}, control {control}", self.prober.name(*path));
            assert!(lost <= control, "{said}");
            self.losses.extend((lost + control > 0).then_some(said));
        }
    }

    /// Adds a port to a node's switch, or removes one. Losses meanwhile do not count: whenever a port comes or goes, Open
    /// vSwitch's userspace datapath loses what some of the paths send within about 5 ms, each time of other paths, whether
    /// policies apply to them or not.
    pub(crate) fn during_port_change<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        self.port_changes.borrow_mut().push((began, Instant::now() + AFTER_PORT_CHANGE));
        done
    }

    /// How many datagrams each allowed path lost since a moment, without those lost on unaffected paths as well, or while a
    /// port was added or removed.
    fn lost_alone(&self, since: &Moment) -> Vec<usize> {
        let changes = self.port_changes.borrow();
        let counts = |at: &Instant| !changes.iter().any(|(began, ended)| (began..=ended).contains(&at));
        let lost = |path: &PathId| self.prober.lost_alone(*path, &self.unaffected, since).into_iter().filter(counts);
        self.allowed.iter().map(|path| lost(path).count()).collect()
    }
}

pub(crate) fn remove(cluster: &Cluster, words: &[&str]) {
    cluster.lab.kubectl(&[&["delete"], words].concat()).unwrap();
}
