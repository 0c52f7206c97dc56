//! The oracle: the incremental result equals a recomputation from the same objects, and the database.
//!
//! Objects are created, changed and deleted in any order, are listed twice, and the controller is replaced in between.
//! There are no faults: those are in the simulation. A failure is shrunk to the steps that matter.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;

use objects::ObjectKind;
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

use crate::support::test_cluster::{TestCluster, is_expected};
use crate::support::{admin_policies, api, pods, policies, schema, services};

const CASES: u32 = 512;

#[derive(Debug, Clone)]
enum Step {
    AddNode(u8),
    /// Its agent writes the chassis and gateway annotations.
    AnnotateNode(u8, &'static str),
    /// With its pods, as Kubernetes does it.
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
    LabelPod(u8, u8, &'static str),
    LimitPod(u8, u8, &'static str),
    LabelNamespace(u8, &'static str),
    /// One of a few shapes.
    AddPolicy {
        namespace: u8,
        name: u8,
        shape: usize,
    },
    DeletePolicy(u8, u8),
    /// Number and shape; number 0 is the baseline.
    AddAdminPolicy(usize, usize),
    DeleteAdminPolicy(usize),
    LabelNode(u8, &'static str),
    /// Removes the pod-networks annotation.
    Unannotate(u8, u8),
    /// A tenant writes another pod's network on its pod.
    Forge(u8, u8, u8),
    /// Creates or changes a Service; the bits of the number select its properties.
    Service(u8, u16),
    DeleteService(u8),
    /// Creates or changes an EndpointSlice; the bits of `endpoints` select its contents.
    Slice {
        slice: u8,
        service: u8,
        endpoints: u16,
    },
    DeleteSlice(u8),
    /// The API servers get another address.
    ApiServer(u8),
    /// Lists all objects of a kind again.
    Relist(ObjectKind),
    Restart,
    /// Runs this many rounds.
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
        3 => (node.clone(), mode).prop_map(|(node, mode)| Step::AnnotateNode(node, mode)),
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
        1 => kind.prop_map(Step::Relist),
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

fn apply_step(world: &mut TestCluster, step: &Step) {
    match *step {
        Step::AddNode(node) => {
            let object = json!({"metadata": {"annotations": {}}});
            world.api.create(ObjectKind::Node, "", &format!("n{node}"), object);
        }
        Step::AnnotateNode(node, mode) => world.annotate_node(&format!("n{node}"), mode, 10 + node),
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
            // A pod needs a namespace.
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
        Step::Relist(kind) => world.list(kind),
        Step::Restart => world.restart(),
        Step::Rounds(rounds) => {
            for _ in 0..rounds {
                world.round();
            }
        }
    }
}

type Rows = BTreeMap<(String, Uuid), RowValues>;

/// The rows in the database, without default columns and rows of other clients.
fn database_rows(world: &TestCluster) -> Rows {
    let schema = world.nb.database.schema();
    let mut rows = world.nb.rows();
    rows.retain(|_, values| !values.get("name").is_some_and(|name| name.to_string().starts_with("foreign")));
    for ((table, _), values) in &mut rows {
        let table = &schema.tables[table];
        values.retain(|column, datum| table.column(column).is_none_or(|column| !column.kind.is_default(datum)));
    }
    rows
}

/// The desired rows of all owners.
fn desired_rows(world: &TestCluster) -> Rows {
    let engine = &world.controller.engine;
    let given = engine.inputs().unwrap();
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
        // Variables of a node without a row for them.
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

fn check(schema: &DatabaseSchema, settings: ClusterSettings, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut world = TestCluster::new(schema, settings);
    for step in steps {
        apply_step(&mut world, step);
    }
    world.run_until_idle();
    let parked: Vec<_> = world.controller.engine.parked().filter(|(_, refusal)| !is_expected(refusal)).collect();
    prop_assert!(parked.is_empty(), "{parked:?}");
    let incremental = database_rows(&world);
    prop_assert_eq!(&incremental, &desired_rows(&world), "the database (left), the desired rows (right)");

    let (commits, written) = (world.nb.log.len(), world.api.history.len());
    world.restart();
    world.run_until_idle();
    prop_assert_eq!(world.api.history.len(), written, "a restart writes objects");
    prop_assert_eq!(world.nb.log.len(), commits + 1, "a restart writes more than its sequence value");

    let mut scratch = world.with_empty_database(schema);
    scratch.run_until_idle();
    prop_assert_eq!(&incremental, &database_rows(&scratch), "incremental (left), from scratch (right)");
    Ok(())
}

#[test]
fn incremental_result_equals_recomputation_and_database() {
    let schema = schema::schema();
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let histories = (settings(), prop::collection::vec(step(), 1..60));
    let written = TestRunner::new(config).run(&histories, |((cluster, multicast, snat_per_pod), steps)| {
        let cluster = cluster.iter().map(|text| text.parse().unwrap()).collect();
        let mut settings = ClusterSettings::new(cluster, vec!["172.30.0.0/16".parse().unwrap()]);
        settings.multicast = multicast;
        settings.snat_per_pod = snat_per_pod;
        check(&schema, settings, &steps)
    });
    written.unwrap_or_else(|error| panic!("{error}"));
}
