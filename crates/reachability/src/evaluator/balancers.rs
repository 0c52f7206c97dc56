//! balancers: where load balancers send what comes to a Service's address, read off the rows that the Service asks for.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use netmodel::Masquerade;
use objects::{NodeFacts, ObjectKey, Protocol};
use ovn_schema::TableRow;
use ovn_schema::northbound::{ChassisTemplateVar, LoadBalancer, LoadBalancerGroup};
use ovsdb::datum::Atom;
use ovsdb::uuid::Uuid;
use topology::contribution::Contribution;
use topology::desired::{CLUSTER_GROUP, Inputs, ROUTER_GROUP, SWITCH_GROUP, VARIABLES_KEY, desired};
use topology::identity::{Owner, row_uuid};
use topology::maps;

/// Who looks a packet's destination up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Balancing {
    /// The switch of a node, for its pods.
    Switch,
    /// The gateway router of a node, for everybody else.
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

/// What a load balancer does with what comes to an address and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Whom it is sent to, one of them; if there is none, it is refused.
    pub(super) backends: Vec<SocketAddr>,
    /// Whether the endpoints see the address of the client.
    pub(super) keeps_source: bool,
}

/// One load balancer.
struct Balancer {
    group: Uuid,
    protocol: String,
    keeps_source: bool,
    vips: Vec<(String, String)>,
}

/// The values of variables, by their rows.
type Variables = BTreeMap<Uuid, BTreeMap<String, String>>;

struct OfService {
    balancers: Vec<Balancer>,
    variables: Variables,
    /// What of the Service is left out, and why.
    refusal: Option<String>,
    /// Why what the database has of it stays as it is.
    broken: Option<String>,
}

/// The load balancers of all Services, each looked at when it is asked for.
pub(super) struct Balancers<'a> {
    given: Inputs<'a>,
    known: RefCell<BTreeMap<Arc<ObjectKey>, Rc<OfService>>>,
    of_nodes: RefCell<Option<Rc<Variables>>>,
}

impl<'a> Balancers<'a> {
    pub(super) fn of(given: Inputs<'a>) -> Self {
        Self { given, known: RefCell::default(), of_nodes: RefCell::default() }
    }

    /// What a node's switch or router does with what comes to an address of a Service; nothing if it has no entry.
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
            own.balancers.iter().filter(|one| one.protocol == protocol.word() && groups.contains(&one.group));
        for balancer in balancers {
            for (key, backends) in &balancer.vips {
                if !is_vip(key, vip, resolve) {
                    continue;
                }
                let backends = resolve(backends).unwrap_or_default();
                let nowhere = self.given.settings.masquerade_address(Masquerade::Blackhole, vip.is_ipv6());
                let backends = backends.split(',').filter_map(|text| text.parse().ok());
                let backends = backends.filter(|backend: &SocketAddr| Some(backend.ip()) != nowhere).collect();
                return Some(Entry { backends, keeps_source: balancer.keeps_source });
            }
        }
        None
    }

    /// What of a Service is left out, and why.
    pub(super) fn refusal(&self, service: &Arc<ObjectKey>) -> Option<String> {
        self.of_service(service).refusal.clone()
    }

    /// Why what the database has of a Service stays as it is, whatever its objects say.
    pub(super) fn broken(&self, service: &Arc<ObjectKey>) -> Option<String> {
        self.of_service(service).broken.clone()
    }

    fn of_service(&self, service: &Arc<ObjectKey>) -> Rc<OfService> {
        if let Some(known) = self.known.borrow().get(service) {
            return known.clone();
        }
        let wanted = desired(&Owner::Service(service.clone()), self.given);
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
            for node in self.given.store.nodes() {
                if let Ok(wanted) = desired(&Owner::Node(node.name.clone()), self.given) {
                    all.extend(variables(&wanted));
                }
            }
            Rc::new(all)
        };
        known.get_or_insert_with(read).clone()
    }

    /// The row of a node's variables.
    fn row_of(&self, node: &NodeFacts) -> Option<Uuid> {
        let chassis = node.chassis.as_ref()?;
        Some(self.given.aliases.resolve(row_uuid(ChassisTemplateVar::TABLE, "Node", chassis, VARIABLES_KEY)))
    }

    fn group(&self, name: &str) -> Uuid {
        self.given.aliases.resolve(row_uuid(LoadBalancerGroup::TABLE, "Cluster", "cluster", name))
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
