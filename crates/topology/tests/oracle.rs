//! The oracle: what came about step by step is what the same objects make from nothing, and what the database holds.
//!
//! Objects come, change and go in any order, are told twice, and the controller is replaced in the middle. Nothing else
//! goes wrong here: faults are the simulation's. What fails is shrunk to the few steps that matter.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;

use ovsdb::datum::{Atom, Datum};
use ovsdb::operation::RowValues;
use ovsdb::schema::DatabaseSchema;
use ovsdb::uuid::Uuid;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use topology::ClusterSettings;
use topology::desired::desired;
use topology::identity::Owner;
use topology::maps;
use topology::store::ObjectKind;

use crate::support::quiet::{Quiet, follows};
use crate::support::{admin_policies, api, pods, policies, schema, services};

const CASES: u32 = 512;

/// Something that happens.
#[derive(Debug, Clone)]
enum Step {
    AddNode(u8),
    /// Its agent tells of a chassis and a gateway.
    WireNode(u8, &'static str),
    /// With its pods, as the cluster's own housekeeping does it.
    DeleteNode(u8),
    AddNamespace(u8),
    Multicast(u8, bool),
    DeleteNamespace(u8),
    AddPod {
        namespace: u8,
        name: u8,
        node: u8,
        host_network: bool,
    },
    FinishPod(u8, u8),
    DeletePod(u8, u8),
    /// The pod gets another label.
    LabelPod(u8, u8, &'static str),
    /// The pod gets other limits.
    LimitPod(u8, u8, &'static str),
    LabelNamespace(u8, &'static str),
    /// A policy, as one of a few.
    AddPolicy {
        namespace: u8,
        name: u8,
        shape: usize,
    },
    DeletePolicy(u8, u8),
    /// An AdminNetworkPolicy of this number, as one of a few; the first is the baseline.
    AddAdminPolicy(usize, usize),
    DeleteAdminPolicy(usize),
    LabelNode(u8, &'static str),
    /// Somebody takes our annotation away.
    Unannotate(u8, u8),
    /// A tenant writes somebody else's network on its pod.
    Forge(u8, u8, u8),
    /// A Service comes, or becomes another: what it is like is in the number.
    Service(u8, u16),
    DeleteService(u8),
    /// Endpoints of a Service come or change, in a slice of this number: which they are is in the last one.
    Slice {
        slice: u8,
        service: u8,
        endpoints: u16,
    },
    DeleteSlice(u8),
    /// API servers get another address.
    ApiServer(u8),
    /// All objects of a kind are told once more.
    Again(ObjectKind),
    /// Another controller takes over.
    Restart,
    /// So much time passes.
    Rounds(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (node, namespace, name) = (0..4_u8, 0..3_u8, 0..6_u8);
    let kind = prop_oneof![
        Just(ObjectKind::Node),
        Just(ObjectKind::Namespace),
        Just(ObjectKind::Pod),
        Just(ObjectKind::Policy),
        Just(ObjectKind::AdminPolicy),
        Just(ObjectKind::Service),
        Just(ObjectKind::EndpointSlice)
    ];
    let label = || prop_oneof![Just("a"), Just("b"), Just("")];
    let limit = prop_oneof![Just("10M"), Just("1.5G"), Just("fast")];
    let policy = (namespace.clone(), 0..4_u8);
    let mode = prop_oneof![Just("shared"), Just("local"), Just("disabled")];
    let pod = (namespace.clone(), name.clone());
    prop_oneof![
        3 => node.clone().prop_map(Step::AddNode),
        3 => (node.clone(), mode).prop_map(|(node, mode)| Step::WireNode(node, mode)),
        1 => node.clone().prop_map(Step::DeleteNode),
        1 => namespace.clone().prop_map(Step::AddNamespace),
        1 => (namespace.clone(), any::<bool>()).prop_map(|(namespace, on)| Step::Multicast(namespace, on)),
        1 => namespace.clone().prop_map(Step::DeleteNamespace),
        8 => (namespace, name, node, prop::bool::weighted(0.1)).prop_map(|(namespace, name, node, host_network)| {
            Step::AddPod { namespace, name, node, host_network }
        }),
        2 => pod.clone().prop_map(|(namespace, name)| Step::FinishPod(namespace, name)),
        3 => pod.clone().prop_map(|(namespace, name)| Step::DeletePod(namespace, name)),
        3 => (pod.clone(), label()).prop_map(|((namespace, name), label)| Step::LabelPod(namespace, name, label)),
        2 => (pod.clone(), limit).prop_map(|((namespace, name), limit)| Step::LimitPod(namespace, name, limit)),
        2 => (0..3_u8, label()).prop_map(|(namespace, label)| Step::LabelNamespace(namespace, label)),
        6 => (policy.clone(), any::<usize>()).prop_map(|((namespace, name), shape)| {
            Step::AddPolicy { namespace, name, shape }
        }),
        3 => policy.prop_map(|(namespace, name)| Step::DeletePolicy(namespace, name)),
        4 => (0..5_usize, any::<usize>()).prop_map(|(number, shape)| Step::AddAdminPolicy(number, shape)),
        2 => (0..5_usize).prop_map(Step::DeleteAdminPolicy),
        1 => (0..4_u8, label()).prop_map(|(node, label)| Step::LabelNode(node, label)),
        1 => pod.clone().prop_map(|(namespace, name)| Step::Unannotate(namespace, name)),
        1 => (pod, 0..64u8).prop_map(|((namespace, name), last)| Step::Forge(namespace, name, last)),
        5 => (0..4_u8, any::<u16>()).prop_map(|(service, like)| Step::Service(service, like)),
        1 => (0..4_u8).prop_map(Step::DeleteService),
        6 => (0..6_u8, 0..4_u8, any::<u16>()).prop_map(|(slice, service, endpoints)| {
            Step::Slice { slice, service, endpoints }
        }),
        2 => (0..6_u8).prop_map(Step::DeleteSlice),
        1 => (0..3_u8).prop_map(Step::ApiServer),
        1 => kind.prop_map(Step::Again),
        1 => Just(Step::Restart),
        6 => (1..6_u8).prop_map(Step::Rounds),
    ]
}

fn settings() -> impl Strategy<Value = (Vec<&'static str>, bool, bool)> {
    let families = prop_oneof![
        Just(vec!["10.128.0.0/22/26"]),
        Just(vec!["fd01::/60/64"]),
        Just(vec!["10.128.0.0/22/26", "fd01::/60/64"])
    ];
    (families, any::<bool>(), any::<bool>())
}

fn pod_key(namespace: u8, name: u8) -> api::Key {
    (ObjectKind::Pod, format!("ns{namespace}"), format!("p{name}"))
}

fn namespace_key(namespace: u8) -> api::Key {
    (ObjectKind::Namespace, String::new(), format!("ns{namespace}"))
}

fn happen(world: &mut Quiet, step: &Step) {
    match *step {
        Step::AddNode(node) => {
            let object = json!({"metadata": {"annotations": {}}});
            world.api.create(ObjectKind::Node, "", &format!("n{node}"), object);
        }
        Step::WireNode(node, mode) => world.wire(&format!("n{node}"), mode, 10 + node),
        Step::DeleteNode(node) => {
            let name = format!("n{node}");
            for key in world.api.keys(ObjectKind::Pod) {
                if world.api.objects[&key]["spec"]["nodeName"] == name.as_str() {
                    world.api.delete(&key);
                }
            }
            world.api.delete(&(ObjectKind::Node, String::new(), name));
        }
        Step::AddNamespace(namespace) => {
            world.api.create(ObjectKind::Namespace, "", &format!("ns{namespace}"), json!({"metadata": {}}));
        }
        Step::Multicast(namespace, on) => world.api.change(&namespace_key(namespace), |object| {
            object["metadata"]["annotations"]["k8s.ovn.org/multicast-enabled"] = json!(on.to_string());
        }),
        Step::DeleteNamespace(namespace) => policies::delete_namespace(&mut world.api, &format!("ns{namespace}")),
        Step::LabelPod(namespace, name, label) => {
            world.api.change(&pod_key(namespace, name), |pod| pod["metadata"]["labels"] = json!({"app": label}));
        }
        Step::LimitPod(namespace, name, limit) => pods::limit(&mut world.api, &pod_key(namespace, name), limit),
        Step::LabelNamespace(namespace, label) => world.api.change(&namespace_key(namespace), |object| {
            object["metadata"]["labels"] = json!({"team": label});
            let logging = if label == "a" { json!({"deny": "alert"}) } else { json!({"allow": "notice"}) };
            object["metadata"]["annotations"]["k8s.ovn.org/acl-logging"] = json!(logging.to_string());
        }),
        Step::AddPolicy { namespace, name, shape } => {
            let (namespace, name) = (format!("ns{namespace}"), format!("policy{name}"));
            world.api.create(ObjectKind::Namespace, "", &namespace, json!({"metadata": {}}));
            let spec = policies::spec(shape);
            if !world.api.create(ObjectKind::Policy, &namespace, &name, json!({"metadata": {}, "spec": spec})) {
                world.api.change(&(ObjectKind::Policy, namespace, name), |policy| policy["spec"] = spec);
            }
        }
        Step::DeletePolicy(namespace, name) => {
            world.api.delete(&(ObjectKind::Policy, format!("ns{namespace}"), format!("policy{name}")));
        }
        Step::AddAdminPolicy(number, shape) => {
            admin_policies::put(&mut world.api, number, admin_policies::spec(shape, number == 0));
        }
        Step::DeleteAdminPolicy(number) => world.api.delete(&admin_policies::key(number)),
        Step::LabelNode(node, label) => {
            let key = (ObjectKind::Node, String::new(), format!("n{node}"));
            world.api.change(&key, |node| node["metadata"]["labels"] = json!({"role": label}));
        }
        Step::AddPod { namespace, name, node, host_network } => {
            // There is no pod without a namespace.
            world.api.create(ObjectKind::Namespace, "", &format!("ns{namespace}"), json!({"metadata": {}}));
            let mut ports = json!([{"ports": [{"name": "http", "containerPort": 8080 + u16::from(name % 2)}]}]);
            if name < 2 {
                pods::open(&mut ports[0]["ports"][0], u16::from(name), namespace.into());
            }
            let spec = json!({"nodeName": format!("n{node}"), "hostNetwork": host_network, "containers": ports});
            let app = if name % 2 == 0 { "a" } else { "b" };
            let labels = json!({"app": app});
            let object = json!({"metadata": {"labels": labels}, "spec": spec, "status": {"phase": "Pending"}});
            world.api.create(ObjectKind::Pod, &format!("ns{namespace}"), &format!("p{name}"), object);
        }
        Step::FinishPod(namespace, name) => {
            world.api.change(&pod_key(namespace, name), |pod| pod["status"]["phase"] = json!("Succeeded"));
        }
        Step::DeletePod(namespace, name) => world.api.delete(&pod_key(namespace, name)),
        Step::Forge(namespace, name, last) => world.api.change(&pod_key(namespace, name), |pod| {
            let network = json!({"default": {"ip_addresses": [format!("10.128.0.{last}/26")],
                "mac_address": format!("0a:58:0a:80:00:{last:02x}")}});
            pod["metadata"]["annotations"]["k8s.ovn.org/pod-networks"] = json!(network.to_string());
        }),
        Step::Unannotate(namespace, name) => world.api.change(&pod_key(namespace, name), |pod| {
            if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
                annotations.remove("k8s.ovn.org/pod-networks");
            }
        }),
        Step::Service(service, like) => services::put_service(&mut world.api, "ns0", service, like),
        Step::DeleteService(service) => world.api.delete(&services::service_key("ns0", service)),
        Step::Slice { slice, service, endpoints } => {
            services::put_slice(&mut world.api, "ns0", slice, service, endpoints);
        }
        Step::DeleteSlice(slice) => world.api.delete(&services::slice_key("ns0", slice)),
        Step::ApiServer(last) => services::move_api_server(&mut world.api, last),
        Step::Again(kind) => world.list(kind),
        Step::Restart => world.restart(),
        Step::Rounds(rounds) => {
            for _ in 0..rounds {
                world.round();
            }
        }
    }
}

type Rows = BTreeMap<(String, Uuid), RowValues>;

/// What the database holds, but for columns at their default and for what is somebody else's.
fn held(world: &Quiet) -> Rows {
    let schema = world.nb.database.schema();
    let mut rows = world.nb.rows();
    rows.retain(|_, values| !values.get("name").is_some_and(|name| name.to_string().starts_with("foreign")));
    for ((table, _), values) in &mut rows {
        let table = &schema.tables[table];
        values.retain(|column, datum| table.column(column).is_none_or(|column| !column.kind.is_default(datum)));
    }
    rows
}

/// What every owner is owed, put together.
fn owed(world: &Quiet) -> Rows {
    let engine = &world.controller.engine;
    let given = engine.given().unwrap();
    let nodes = engine.store().nodes().map(|node| Owner::Node(node.name.clone()));
    let namespaces = engine.store().namespaces().map(|namespace| Owner::Namespace(namespace.name.clone()));
    let of_pods = engine.store().pods().map(|pod| Owner::Namespace(pod.key.namespace.clone()));
    let pods = engine.store().pods().map(|pod| Owner::Pod(pod.key.clone()));
    let services = engine.store().services().map(|service| Owner::Service(service.key.clone()));
    let pods = pods.chain(services);
    let mut rows = Rows::new();
    let mut sets: BTreeMap<(String, Uuid, String), Vec<Atom>> = BTreeMap::new();
    let selectors = engine.store().selectors().map(|words| Owner::Selector(words.clone()));
    let policies = engine.store().policies().map(|policy| Owner::Policy(policy.key.clone()));
    let admin = engine.store().admin_policies(false).map(|policy| Owner::AdminPolicy((*policy.key.name).into()));
    let baseline = engine.store().admin_policies(true).map(|policy| Owner::BaselinePolicy((*policy.key.name).into()));
    let policies = selectors.chain(policies).chain(admin).chain(baseline);
    for owner in [Owner::Cluster].into_iter().chain(nodes).chain(namespaces).chain(of_pods).chain(pods).chain(policies)
    {
        let wanted = desired(&owner, given).unwrap();
        rows.extend(wanted.rows.into_iter().map(|row| ((row.id.table.to_owned(), row.id.uuid), row.values)));
        for member in wanted.members {
            let row = member.column.row;
            sets.entry((row.table.into(), row.uuid, member.column.column.into())).or_default().push(member.atom);
        }
    }
    for ((table, uuid, column), members) in sets {
        // Variables for a node that has no row for them.
        let Some(row) = rows.get_mut(&(table.clone(), uuid)) else {
            assert_eq!(table, "Chassis_Template_Var");
            continue;
        };
        let pairs = column == "variables";
        let datum = if pairs { Datum::map(members.iter().map(maps::pair)) } else { Datum::set(members) };
        row.insert(column, datum);
    }
    rows
}

fn judge(schema: &DatabaseSchema, settings: ClusterSettings, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut world = Quiet::new(schema, settings);
    for step in steps {
        happen(&mut world, step);
    }
    world.rest();
    let parked: Vec<_> = world.controller.engine.parked().filter(|(_, refusal)| !follows(refusal)).collect();
    prop_assert!(parked.is_empty(), "{parked:?}");
    let came_about = held(&world);
    prop_assert_eq!(&came_about, &owed(&world), "the database (left), what is owed (right)");

    let (commits, told) = (world.nb.log.len(), world.api.history.len());
    world.restart();
    world.rest();
    prop_assert_eq!(world.api.history.len(), told, "a restart writes onto objects");
    prop_assert_eq!(world.nb.log.len(), commits + 1, "a restart writes its epoch only");

    let mut scratch = world.anew(schema);
    scratch.rest();
    prop_assert_eq!(&came_about, &held(&scratch), "step by step (left), from nothing (right)");
    Ok(())
}

#[test]
fn step_by_step_is_from_scratch_is_what_the_database_holds() {
    let schema = schema::schema();
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let stories = (settings(), prop::collection::vec(step(), 1..60));
    let told = TestRunner::new(config).run(&stories, |((cluster, multicast, snat_per_pod), steps)| {
        let cluster = cluster.iter().map(|text| text.parse().unwrap()).collect();
        let mut settings = ClusterSettings::new(cluster, vec!["172.30.0.0/16".parse().unwrap()]);
        settings.multicast = multicast;
        settings.snat_per_pod = snat_per_pod;
        judge(&schema, settings, &steps)
    });
    told.unwrap_or_else(|error| panic!("{error}"));
}
