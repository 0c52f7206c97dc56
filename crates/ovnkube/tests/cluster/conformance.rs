//! A selection of Kubernetes' e2e specs, from every group of `make conformance`, on one cluster.

use std::collections::BTreeSet;

use lab::conformance::{Artifacts, Options, Outcome, Selection, SpecSet, run};
use lab::directories::Directories;
use lab::progress::Progress;
use lab::{Databases, Family, GatewayMode, Suite};

use crate::common::cluster_of;

/// Full names, as `make conformance` reports them; without slow specs.
const SPECS: [&str; 26] = [
    "[sig-network] Services should serve a basic endpoint from pods [Conformance]",
    "[sig-network] Services should be able to create a functioning NodePort service [Conformance]",
    "[sig-network] Services should have session affinity work for NodePort service [LinuxOnly] [Conformance]",
    "[sig-network] Services should be able to change the type from ExternalName to ClusterIP [Conformance]",
    "[sig-network] EndpointSlice should support a Service with multiple ports specified in multiple EndpointSlices [Conformance]",
    "[sig-network] HostPort validates that there is no conflict between pods with same hostPort but different hostIP and protocol [LinuxOnly] [Conformance]",
    "[sig-network] DNS should provide DNS for services [Conformance]",
    "[sig-network] DNS should provide /etc/hosts entries for the cluster [Conformance]",
    "[sig-network] DNS should support configurable pod DNS nameservers [Conformance]",
    "[sig-network] Proxy version v1 should proxy through a service and a pod [Conformance]",
    "[sig-network] Networking Granular Checks: Pods should function for intra-pod communication: udp [NodeConformance] [Conformance]",
    "[sig-network] Netpol NetworkPolicy between server and client should support a 'default-deny-ingress' policy [Feature:NetworkPolicy]",
    "[sig-network] Netpol NetworkPolicy between server and client should enforce policy based on Ports [Feature:NetworkPolicy]",
    "[sig-network] Netpol NetworkPolicy between server and client should allow egress access to server in CIDR block [Feature:NetworkPolicy]",
    "[sig-network] Netpol NetworkPolicy between server and client should allow ingress access from updated pod [Feature:NetworkPolicy]",
    "[sig-network] Services should allow pods to hairpin back to themselves through services",
    "[sig-network] Services should be rejected when no endpoints exist",
    "[sig-network] Services should implement service.kubernetes.io/headless",
    "[sig-network] Services should preserve source pod IP for traffic thru service cluster IP [LinuxOnly]",
    "[sig-network] Services should respect internalTrafficPolicy=Local Pod to Pod",
    "[sig-network] NoSNAT Should be able to send traffic between Pods without SNAT",
    "[sig-network] Traffic Distribution should route traffic to an endpoint in the same zone when using PreferSameZone",
    "[sig-node] Pods should contain environment variables for services [NodeConformance] [Conformance]",
    "[sig-node] Pods should support remote command execution over websockets [NodeConformance] [Conformance]",
    "[sig-apps] ReplicaSet should serve a basic image on each replica with a public image [Conformance]",
    "[sig-cli] Kubectl client Kubectl expose should create services for rc [Conformance]",
];

/// The precedence of AdminNetworkPolicy, NetworkPolicy and BaselineAdminNetworkPolicy, and plain rules of the latter.
const POLICY_API: &str = "^(AdminNetworkPolicyIntegration|BaselineAdminNetworkPolicyGress)$";

#[test]
fn selected_kubernetes_e2e_specs_pass() {
    let place = Directories::from_environment().unwrap();
    let artifacts = Artifacts::ensure(&place, Suite::from_environment().unwrap(), &Progress::silent()).unwrap();
    let lab = cluster_of(3, "specs", Family::V4, GatewayMode::Shared, Databases::Standalone);
    let output = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance");
    let selection = Selection { set: SpecSet::All, focus: Some(Selection::exact_names(&SPECS)) };
    let options = Options { selection, processes: 4, output };
    let report = run(&place, &lab.record(), &artifacts, &options, &Progress::silent()).unwrap();
    println!("{}\n{}", report.table(false), report.summary());
    assert!(report.is_success(), "\n{}", report.table(false));
    // A renamed or skipped spec proves nothing.
    let passed: BTreeSet<&str> = report.with(Outcome::Passed).map(|spec| spec.name.as_str()).collect();
    let missing: Vec<&&str> = SPECS.iter().filter(|name| !passed.contains(**name)).collect();
    assert!(missing.is_empty(), "not run: {missing:#?}\n{}", report.table(false));
    let groups: BTreeSet<&str> = report.specs.iter().map(|spec| spec.group).collect();
    assert_eq!(groups.len(), 4, "{groups:?}");

    let selection = Selection { set: SpecSet::PolicyApi, focus: Some(POLICY_API.into()) };
    let options = Options { selection, ..options };
    let report = run(&place, &lab.record(), &artifacts, &options, &Progress::silent()).unwrap();
    println!("{}\n{}", report.table(false), report.summary());
    assert!(report.is_success(), "\n{}", report.table(false));
    let passed: Vec<&str> = report.with(Outcome::Passed).map(|spec| spec.name.as_str()).collect();
    for kind in ["AdminNetworkPolicy", "BaselineAdminNetworkPolicy"] {
        assert!(passed.iter().any(|name| name.starts_with(kind)), "no sub-test of {kind}: {passed:#?}");
    }
}
