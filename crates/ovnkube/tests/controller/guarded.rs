//! A guarded namespace: a policy lets friends in, keeps strangers out and lets nothing go out, and a prober watches it.

use std::net::IpAddr;
use std::time::Instant;

use lab::Pod;
use serde_json::{Value, json};

use crate::cluster::{Cluster, until};
use crate::crowd::{labelled_pod, namespace, policy};
use crate::prober::{Moment, Prober, WayId};

pub(crate) fn addresses(cluster: &Cluster, namespace: &str, name: &str) -> Vec<IpAddr> {
    cluster.network_of(namespace, name).addresses.iter().map(|own| own.address()).collect()
}

/// A pod of the cluster, bound.
pub(crate) fn bound(cluster: &Cluster, namespace: &str, name: &str, node: u32, labels: &Value) -> Pod {
    cluster.apply_all(&[labelled_pod(namespace, name, &format!("n{node}"), labels, &json!([]))]);
    cluster.bind(node, namespace, name)
}

/// Everything that is in the database is in the nodes' flows, and in what their datapaths remember of them.
pub(crate) fn settled(cluster: &Cluster) {
    cluster.lab.nbctl(&["--wait=hv", "sync"]).unwrap();
    for node in 1..=cluster.lab.record().spec.nodes {
        cluster.lab.node(node).unwrap().run(&["ovs-appctl", "revalidator/wait"]).unwrap();
    }
}

/// Waits until the rules of a policy are there, or are not.
pub(crate) fn stands(cluster: &Cluster, name: &str, there: bool) {
    until(&format!("{name} has rules: {there}"), || {
        let ids = cluster.column("ACL", "external_ids");
        (ids.iter().any(|ids| ids.split(' ').any(|one| one == format!("k8s.ovn.org/name={name}"))) == there)
            .then_some(())
    });
    settled(cluster);
}

/// Guards namespace shop: friends come in, and nothing goes out of it.
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

/// How many controls a change may be compared with.
const CONTROLS: usize = 5;

/// The ways that the prober watches.
pub(crate) struct Watch {
    pub(crate) cluster: Cluster,
    pub(crate) prober: Prober,
    /// Ways of strangers: closed since the guard stands.
    pub(crate) forbidden: Vec<WayId>,
    /// Ways of friends.
    pub(crate) allowed: Vec<WayId>,
    /// Ways between the same nodes that no policy is about.
    unconcerned: Vec<WayId>,
    /// A friend's pod.
    pub(crate) friend: Pod,
    /// When the guard was seen to be in force.
    pub(crate) since: Moment,
    /// What was lost of what is allowed, by the change.
    pub(crate) losses: Vec<String>,
}

impl Watch {
    /// A guarded namespace in a cluster with two nodes and a controller. Without the guard, all ways are open.
    pub(crate) fn on(cluster: Cluster) -> Self {
        cluster.apply_all(&[namespace("shop", &json!({"team": "blue"})), namespace("yard", &json!({"team": "red"}))]);
        let web = bound(&cluster, "shop", "web", 1, &json!({"app": "web"}));
        let friend = bound(&cluster, "shop", "friend", 2, &json!({"app": "friend"}));
        let near = bound(&cluster, "yard", "near", 1, &json!({"app": "stranger"}));
        let far = bound(&cluster, "yard", "far", 2, &json!({"app": "stranger"}));
        settled(&cluster);
        let prober = Prober::default();
        for pod in [&web, &near, &far] {
            prober.listen(pod);
        }
        let mut ways = [Vec::new(), Vec::new(), Vec::new()];
        for (from, to, kind) in [
            (&near, ("shop", "web"), 0),
            (&far, ("shop", "web"), 0),
            (&web, ("yard", "near"), 0),
            (&web, ("yard", "far"), 0),
            (&friend, ("shop", "web"), 1),
            (&far, ("yard", "near"), 2),
        ] {
            for address in addresses(&cluster, to.0, to.1) {
                ways[kind].push(prober.send(from, address));
            }
        }
        let [forbidden, allowed, unconcerned] = ways;
        prober.open(&[forbidden.as_slice(), &allowed, &unconcerned].concat());
        cluster.apply(&guard("guard", &json!([])));
        stands(&cluster, "shop/guard", true);
        let since = prober.closed(&forbidden);
        prober.open(&allowed);
        Self { cluster, prober, forbidden, allowed, unconcerned, since, losses: Vec::new(), friend }
    }

    /// One change: what is forbidden before and after it never passes, and of what is allowed not more is lost than in a control
    /// of the same length, in which nothing changes. A busy machine loses something now and then, so there are more controls
    /// if the first has less; a quiet one loses nothing in any of them.
    ///
    /// What is lost at the same time on the ways that no policy is about is not the change's: Open vSwitch's userspace datapath
    /// stands still for a moment when ports come and go.
    pub(crate) fn over(&mut self, what: &str, change: impl FnOnce(&Cluster)) {
        self.over_beside(what, change, |_| ());
    }

    /// The same, where something happens in the controls as well: what the datapath does to everybody with such a change.
    pub(crate) fn over_beside(&mut self, what: &str, change: impl FnOnce(&Cluster), beside: impl Fn(&Cluster)) {
        let (begin, began) = (self.prober.now(), Instant::now());
        change(&self.cluster);
        settled(&self.cluster);
        self.prober.nothing_passed(what, &self.forbidden, &self.since);
        self.prober.open(&[self.allowed.as_slice(), &self.unconcerned].concat());
        let lost = self.lost_alone(&begin);
        let length = began.elapsed();
        let mut control = vec![0; lost.len()];
        for _ in 0..CONTROLS {
            let (begin, began) = (self.prober.now(), Instant::now());
            beside(&self.cluster);
            std::thread::sleep(length.saturating_sub(began.elapsed()));
            self.prober.open(&[self.allowed.as_slice(), &self.unconcerned].concat());
            control = control.into_iter().zip(self.lost_alone(&begin)).map(|(most, one)| most.max(one)).collect();
            if lost.iter().zip(&control).all(|(lost, control)| lost <= control) {
                break;
            }
        }
        for ((way, lost), control) in self.allowed.iter().zip(lost).zip(control) {
            let said = format!("{what}: {lost} lost from {}, control {control}", self.prober.name(*way));
            assert!(lost <= control, "{said}");
            self.losses.extend((lost + control > 0).then_some(said));
        }
    }

    /// How many were lost since a moment on each way that is allowed, and only there.
    fn lost_alone(&self, since: &Moment) -> Vec<usize> {
        self.allowed.iter().map(|way| self.prober.lost_alone(*way, &self.unconcerned, since)).collect()
    }
}

pub(crate) fn remove(cluster: &Cluster, words: &[&str]) {
    cluster.lab.kubectl(&[&["delete"], words].concat()).unwrap();
}
