//! A guarded namespace: its policy allows ingress from friends only and no egress, and a prober measures it.

use std::net::IpAddr;
use std::time::Instant;

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

/// `datapath_…` counters of both nodes' switches, for messages.
fn datapath_counters(cluster: &Cluster) -> String {
    let nodes = 1..=cluster.lab.record().spec.nodes;
    let shown = nodes.map(|node| cluster.lab.node(node).unwrap().run(&["ovs-appctl", "coverage/show"]).unwrap());
    let lines: Vec<String> = shown
        .flat_map(|text| text.lines().filter(|line| line.contains("drop")).map(String::from).collect::<Vec<_>>())
        .collect();
    lines.join("; ")
}

/// How many packets the nodes' datapaths dropped because flow lookups in ovs-vswitchd were suspended, as they are
/// while it adds or removes ports.
fn missed_upcalls(cluster: &Cluster) -> usize {
    let counters = datapath_counters(cluster);
    let of_lookups = counters.split("; ").filter(|line| line.starts_with("datapath_drop_lock_error"));
    of_lookups.filter_map(|line| line.rsplit_once("total: ")?.1.trim().parse::<usize>().ok()).sum()
}

/// Limit of control windows per change.
const CONTROLS: usize = 5;

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
        Self { cluster, prober, forbidden, allowed, unaffected, since, losses: Vec::new(), friend }
    }

    /// One change: denied paths stay closed, and allowed paths lose no more than in a control window of the same length
    /// without a change. A busy machine loses packets sometimes, so up to [`CONTROLS`] windows are measured if the first
    /// loses less than the change did.
    ///
    /// What Open vSwitch's userspace datapath loses by itself does not count: losses at the same time on unaffected paths,
    /// because it stalls briefly when ports are added and removed; and what it counts as dropped because it could not look
    /// up a new flow at that moment, which only hits packets whose cached flow was just replaced.
    pub(crate) fn during(&mut self, what: &str, change: impl FnOnce(&Cluster)) {
        self.during_beside(what, change, |_| ());
    }

    /// Like [`Self::during`], with an action in the control windows that stalls the datapath as the change does.
    pub(crate) fn during_beside(&mut self, what: &str, change: impl FnOnce(&Cluster), beside: impl Fn(&Cluster)) {
        let dropped_before = missed_upcalls(&self.cluster);
        let (begin, began) = (self.prober.now(), Instant::now());
        change(&self.cluster);
        wait_flows(&self.cluster);
        self.prober.assert_nothing_passed(what, &self.forbidden, &self.since);
        self.prober.wait_open(&[self.allowed.as_slice(), &self.unaffected].concat());
        let lost = self.lost_alone(&begin);
        let dropped = missed_upcalls(&self.cluster) - dropped_before;
        let length = began.elapsed();
        let mut control = vec![0; lost.len()];
        for _ in 0..CONTROLS {
            let (begin, began) = (self.prober.now(), Instant::now());
            beside(&self.cluster);
            std::thread::sleep(length.saturating_sub(began.elapsed()));
            self.prober.wait_open(&[self.allowed.as_slice(), &self.unaffected].concat());
            control = control.into_iter().zip(self.lost_alone(&begin)).map(|(most, one)| most.max(one)).collect();
            if lost.iter().zip(&control).all(|(lost, control)| lost <= control) {
                break;
            }
        }
        for ((path, lost), control) in self.allowed.iter().zip(lost).zip(control) {
            let name = self.prober.name(*path);
            let said = format!("{what}: {lost} lost from {name}, control {control}, dropped by the datapath {dropped}");
            assert!(lost <= control + dropped, "{said}; {}", datapath_counters(&self.cluster));
            self.losses.extend((lost + control > 0).then_some(said));
        }
    }

    /// How many datagrams each allowed path lost since a moment, without those lost on unaffected paths as well.
    fn lost_alone(&self, since: &Moment) -> Vec<usize> {
        self.allowed.iter().map(|path| self.prober.lost_alone(*path, &self.unaffected, since)).collect()
    }
}

pub(crate) fn remove(cluster: &Cluster, words: &[&str]) {
    cluster.lab.kubectl(&[&["delete"], words].concat()).unwrap();
}
