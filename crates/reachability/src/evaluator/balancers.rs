//! Where load balancers send packets to a Service's address, by the rows that the Service needs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use netmodel::{Family, Masquerade};
use objects::{NodeFacts, ObjectKey, Protocol};
use ovn_schema::TableRow;
use ovn_schema::northbound::{ChassisTemplateVar, LoadBalancer, LoadBalancerGroup};
use ovsdb::datum::Atom;
use ovsdb::uuid::Uuid;
use topology::contribution::Contribution;
use topology::desired::{CLUSTER_GROUP, Inputs, ROUTER_GROUP, SWITCH_GROUP, VARIABLES_KEY, desired};
use topology::identity::{Owner, row_uuid};
use topology::maps;

/// Where a packet is load-balanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Balancing {
    /// At the switch of a node, for its pods.
    Switch,
    /// At the gateway router of a node, for all other clients.
    Router,
}

impl Balancing {
    fn groups(self) -> [&'static str; 2] {
        match self {
            Self::Switch => [CLUSTER_GROUP, SWITCH_GROUP],
            Self::Router => [CLUSTER_GROUP, ROUTER_GROUP],
        }
    }
}

/// The backends of an address and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// One of them is selected; if empty, connections are refused.
    pub(super) backends: Vec<SocketAddr>,
    /// Whether endpoints see the client's address (`skip_snat`).
    pub(super) keeps_source: bool,
}

/// A `Load_Balancer` row.
struct Balancer {
    group: Uuid,
    protocol: String,
    keeps_source: bool,
    vips: Vec<(String, String)>,
}

/// Template variables by row.
type Variables = BTreeMap<Uuid, BTreeMap<String, String>>;

struct OfService {
    balancers: Vec<Balancer>,
    variables: Variables,
    /// Why a part of the Service is left out.
    refusal: Option<String>,
    /// Why its existing rows stay as they are.
    broken: Option<String>,
}

/// The load balancers of all Services, computed on demand.
pub(super) struct Balancers<'a> {
    inputs: Inputs<'a>,
    known: RefCell<BTreeMap<Arc<ObjectKey>, Rc<OfService>>>,
    of_nodes: RefCell<Option<Rc<Variables>>>,
}

impl<'a> Balancers<'a> {
    pub(super) fn of(inputs: Inputs<'a>) -> Self {
        Self { inputs, known: RefCell::default(), of_nodes: RefCell::default() }
    }

    /// The entry of a node's switch or router for an address; None if it has none.
    pub(super) fn entry(
        &self,
        service: &Arc<ObjectKey>,
        balancing: Balancing,
        node: &NodeFacts,
        vip: SocketAddr,
        protocol: Protocol,
    ) -> Option<Entry> {
        let own = self.of_service(service);
        let of_nodes = self.variables_of_nodes();
        let row = self.row_of(node);
        let resolve = |text: &str| -> Option<String> {
            let Some(name) = text.strip_prefix('^') else { return Some(text.to_owned()) };
            let row = row.as_ref()?;
            let value = |variables: &Variables| variables.get(row)?.get(name).cloned();
            value(&own.variables).or_else(|| value(&of_nodes))
        };
        let groups = balancing.groups().map(|name| self.group(name));
        let balancers =
            own.balancers.iter().filter(|one| one.protocol == protocol.ovn_name() && groups.contains(&one.group));
        for balancer in balancers {
            for (key, backends) in &balancer.vips {
                if !is_vip(key, vip, resolve) {
                    continue;
                }
                let backends = resolve(backends).unwrap_or_default();
                let blackhole = self.inputs.settings.masquerade_address(Masquerade::Blackhole, Family::of(vip.ip()));
                let backends = backends.split(',').filter_map(|text| text.parse().ok());
                let backends = backends.filter(|backend: &SocketAddr| Some(backend.ip()) != blackhole).collect();
                return Some(Entry { backends, keeps_source: balancer.keeps_source });
            }
        }
        None
    }

    /// Why a part of a Service is left out.
    pub(super) fn refusal(&self, service: &Arc<ObjectKey>) -> Option<String> {
        self.of_service(service).refusal.clone()
    }

    /// Why a Service cannot be evaluated: its existing rows stay as they are.
    pub(super) fn broken(&self, service: &Arc<ObjectKey>) -> Option<String> {
        self.of_service(service).broken.clone()
    }

    fn of_service(&self, service: &Arc<ObjectKey>) -> Rc<OfService> {
        if let Some(known) = self.known.borrow().get(service) {
            return known.clone();
        }
        let wanted = desired(&Owner::Service(service.clone()), self.inputs);
        let read = Rc::new(match wanted {
            Ok(wanted) => OfService {
                balancers: balancers(&wanted),
                variables: variables(&wanted),
                refusal: wanted.refusal.map(|refusal| refusal.to_string()),
                broken: None,
            },
            Err(refusal) => OfService {
                balancers: Vec::new(),
                variables: Variables::new(),
                refusal: None,
                broken: Some(refusal.to_string()),
            },
        });
        self.known.borrow_mut().insert(service.clone(), read.clone());
        read
    }

    fn variables_of_nodes(&self) -> Rc<Variables> {
        let mut known = self.of_nodes.borrow_mut();
        let read = || {
            let mut all = Variables::new();
            for node in self.inputs.store.nodes() {
                if let Ok(wanted) = desired(&Owner::Node(node.name.clone()), self.inputs) {
                    all.extend(variables(&wanted));
                }
            }
            Rc::new(all)
        };
        known.get_or_insert_with(read).clone()
    }

    /// The row of a node's template variables.
    fn row_of(&self, node: &NodeFacts) -> Option<Uuid> {
        let chassis = node.chassis.as_ref()?;
        Some(self.inputs.aliases.resolve(row_uuid(ChassisTemplateVar::TABLE, "Node", chassis, VARIABLES_KEY)))
    }

    fn group(&self, name: &str) -> Uuid {
        self.inputs.aliases.resolve(row_uuid(LoadBalancerGroup::TABLE, "Cluster", "cluster", name))
    }
}

fn is_vip(key: &str, vip: SocketAddr, resolve: impl Fn(&str) -> Option<String>) -> bool {
    let Some((address, port)) = key.rsplit_once(':') else { return false };
    let Some(address) = resolve(address) else { return false };
    let bare = address.trim_matches(['[', ']']);
    port.parse() == Ok(vip.port()) && bare.parse::<IpAddr>() == Ok(vip.ip())
}

fn balancers(wanted: &Contribution) -> Vec<Balancer> {
    let rows = wanted.rows.iter().filter(|row| row.id.table == LoadBalancer::TABLE);
    let balancers = rows.filter_map(|row| {
        let joins = |atom: &Atom| matches!(atom, Atom::Uuid(uuid) if *uuid == row.id.uuid);
        let group = wanted.members.iter().find(|member| joins(&member.atom))?.column.row.uuid;
        let option = |key: &str| row.values.get("options").and_then(|options| options.get_str(key));
        let vips = row.values.get("vips").map(|vips| vips.pairs().to_vec()).unwrap_or_default();
        Some(Balancer {
            group,
            protocol: row.values.get("protocol").map(ToString::to_string).unwrap_or_default(),
            keeps_source: option("skip_snat").as_deref() == Some("true"),
            vips: vips.into_iter().map(|(vip, backends)| (vip.to_string(), backends.to_string())).collect(),
        })
    });
    balancers.collect()
}

fn variables(wanted: &Contribution) -> Variables {
    let mut all = Variables::new();
    let members = wanted.members.iter().filter(|member| member.column.row.table == ChassisTemplateVar::TABLE);
    for member in members {
        let (name, value) = maps::pair(&member.atom);
        all.entry(member.column.row.uuid).or_default().insert(name.to_string(), value.to_string());
    }
    all
}
