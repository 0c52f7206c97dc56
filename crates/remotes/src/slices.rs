//! EndpointSlices of one Service, as a watch reports them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kubernetes::{Identity, Observed};
use serde::Deserialize;

/// Label that names the writer of a slice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Kubernetes' controller, which writes the slices of Services with a selector from pods.
const FROM_PODS: &str = "endpointslice-controller.k8s.io";

/// The parsed fields of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    name: String,
    from_pods: bool,
    ports: BTreeMap<String, u16>,
    hosts: Vec<String>,
}

/// Hosts in a stable order, with the number of each named port.
pub(crate) type Hosts = BTreeMap<String, BTreeMap<String, u16>>;

/// What all slices of the Service say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Members {
    pub(crate) hosts: Hosts,
    /// They are written from pods: a host that is missing may only be restarting its pod.
    pub(crate) from_pods: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    ports: Option<Vec<Port>>,
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Port {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    port: Option<u16>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    addresses: Vec<String>,
}

impl Slice {
    /// Parses the object's JSON. Conditions do not count: a raft member that is not ready is a member.
    pub(crate) fn parse(json: &str) -> Result<Self, String> {
        let object: Object = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let ports = object.ports.into_iter().flatten();
        let hosts = object.endpoints.into_iter().flatten().filter_map(|endpoint| endpoint.addresses.into_iter().next());
        Ok(Self {
            from_pods: object.metadata.labels.get(MANAGED_BY).is_some_and(|writer| writer == FROM_PODS),
            name: object.metadata.name,
            ports: ports.filter_map(|port| Some((port.name.unwrap_or_default(), port.port?))).collect(),
            hosts: hosts.collect(),
        })
    }
}

/// The slices of one Service, kept from the events of a watch.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    known: BTreeMap<String, Slice>,
    /// Not seen since the list began.
    unconfirmed: BTreeSet<String>,
    complete: bool,
}

impl Slices {
    /// Takes an event of the watch.
    pub(crate) fn observe(&mut self, event: Observed<Slice>) {
        match event {
            Observed::Relisting => self.unconfirmed = self.known.keys().cloned().collect(),
            Observed::Upsert(slice) => {
                self.unconfirmed.remove(&slice.name);
                self.known.insert(slice.name.clone(), slice);
            }
            Observed::Deleted(Identity { name, .. }) => {
                self.known.remove(&name);
            }
            // Its last valid version stays.
            Observed::Malformed { object, .. } => {
                self.unconfirmed.remove(&object.name);
            }
            Observed::Listed => {
                for name in std::mem::take(&mut self.unconfirmed) {
                    self.known.remove(&name);
                }
                self.complete = true;
            }
            Observed::Failed(_) | Observed::Resumed | Observed::Absent => {}
        }
    }

    /// What they say; none until all are listed.
    pub(crate) fn members(&self) -> Option<Members> {
        let slices = || self.known.values().filter(|slice| !slice.hosts.is_empty());
        let hosts = slices().flat_map(|slice| slice.hosts.iter().map(|host| (host.clone(), slice.ports.clone())));
        self.complete.then(|| Members { hosts: hosts.collect(), from_pods: slices().all(|slice| slice.from_pods) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(name: &str, writer: &str, hosts: &[&str]) -> Slice {
        let endpoints: Vec<_> = hosts.iter().map(|host| json!({"addresses": [host]})).collect();
        let object = json!({"metadata": {"name": name, "labels": {MANAGED_BY: writer}}, "endpoints": endpoints,
            "ports": [{"name": "north", "port": 6641}, {"name": "all"}]});
        Slice::parse(&object.to_string()).unwrap()
    }

    #[test]
    fn slices_are_combined_and_deletions_are_seen_after_a_new_list() {
        let mut slices = Slices::default();
        let names = |slices: &Slices| slices.members().map(|it| it.hosts.into_keys().collect::<Vec<_>>().join(" "));
        slices.observe(Observed::Relisting);
        slices.observe(Observed::Upsert(slice("a", FROM_PODS, &["192.0.2.2"])));
        assert_eq!(names(&slices), None, "the list is not complete");
        slices.observe(Observed::Upsert(slice("b", FROM_PODS, &["192.0.2.1", "192.0.2.2"])));
        slices.observe(Observed::Listed);
        assert_eq!(names(&slices).as_deref(), Some("192.0.2.1 192.0.2.2"));
        let members = slices.members().unwrap();
        assert_eq!((members.hosts["192.0.2.1"].get("north"), members.from_pods), (Some(&6641), true));
        slices.observe(Observed::Relisting);
        slices.observe(Observed::Upsert(slice("a", "ovnkube-db", &["192.0.2.2"])));
        assert_eq!(names(&slices).as_deref(), Some("192.0.2.1 192.0.2.2"));
        slices.observe(Observed::Listed);
        assert_eq!(names(&slices).as_deref(), Some("192.0.2.2"));
        assert!(!slices.members().unwrap().from_pods);
    }

    #[test]
    fn objects_without_endpoints_are_empty() {
        for json in [json!({"metadata": {"name": "a"}}), json!({"metadata": {"name": "a"}, "endpoints": null})] {
            assert!(Slice::parse(&json.to_string()).unwrap().hosts.is_empty());
        }
        assert!(Slice::parse("{}").is_err());
    }
}
