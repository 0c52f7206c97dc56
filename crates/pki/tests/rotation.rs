//! Rotations under two signers that race, crash between any two requests, have wrong clocks, and under administrators who edit the
//! objects: programs always accept each other, whichever versions of the objects have reached them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod world;

use pki::{Domain, Stored};
use proptest::prelude::*;
use world::{DELAY, Edit, World};

#[derive(Debug, Clone)]
enum Op {
    /// A signer sends its next request.
    Request(usize),
    /// A signer reconciles completely, unless it is interrupted by its own conflicts.
    Reconcile(usize),
    Tick(i64),
    Crash(usize),
    Edit(Edit),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let edit = prop_oneof![
        Just(Edit::DeleteCa),
        Just(Edit::DamageCa),
        Just(Edit::RestoreCa),
        Just(Edit::DeleteLeaf),
        Just(Edit::DamageLeaf),
        Just(Edit::DamageBundle),
        Just(Edit::AddForeignCa),
        Just(Edit::RequestCa),
        Just(Edit::RequestCa),
        Just(Edit::RequestLeaf),
        Just(Edit::RequestRetire),
    ];
    let tick = prop_oneof![Just(1), Just(7), Just(DELAY - 1), Just(DELAY + 1), Just(200), Just(450), Just(5000)];
    let op = prop_oneof![
        8 => (0_usize..2).prop_map(Op::Request),
        5 => (0_usize..2).prop_map(Op::Reconcile),
        6 => tick.prop_map(Op::Tick),
        1 => (0_usize..2).prop_map(Op::Crash),
        2 => edit.prop_map(Op::Edit),
    ];
    prop::collection::vec(op, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn trust_has_no_gap_and_rotations_end(ops in ops(), skews in [-20_i64..20, -20_i64..20], nodes in any::<bool>()) {
        let mut world = World::of(if nodes { Domain::Nodes } else { Domain::ControlPlane }, skews);
        for op in ops {
            match op {
                Op::Request(signer) => world.request(signer),
                Op::Reconcile(signer) => world.reconcile(signer),
                Op::Tick(seconds) => world.tick(seconds),
                Op::Crash(signer) => world.crash(signer),
                Op::Edit(edit) => world.edit(edit),
            }
            world.check();
        }
        world.settle();
    }
}

#[test]
fn a_rotation_of_the_ca_takes_the_delay_and_keeps_the_old_one_trusted() {
    let mut world = World::new([0, 0]);
    world.reconcile(0);
    let (first, leaf) = (world.signing(), world.leaf());
    world.edit(Edit::RequestCa);
    world.reconcile(0);
    assert_eq!((world.signing(), world.leaf()), (first, leaf.clone()), "the new CA is only published");
    assert_eq!(world.bundle().len(), 2);
    world.tick(DELAY - 1);
    world.reconcile(0);
    assert_eq!(world.leaf(), leaf, "too early");
    world.tick(1);
    world.reconcile(0);
    assert_ne!(world.signing(), first);
    assert_ne!(world.leaf(), leaf);
    assert_eq!(world.bundle().len(), 2, "processes may still have the old certificate");
    world.check();
    // It is forgotten when its last certificate has expired.
    for _ in 0..10 {
        world.tick(400);
        world.reconcile(0);
        world.check();
    }
    assert!(!world.bundle().contains(&first));
}

#[test]
fn a_restarted_signer_waits_again() {
    let mut world = World::new([0, 0]);
    world.reconcile(0);
    let first = world.signing();
    world.edit(Edit::RequestCa);
    world.reconcile(0);
    world.tick(DELAY - 1);
    world.crash(0);
    world.reconcile(0);
    world.tick(DELAY - 1);
    world.reconcile(0);
    assert_eq!(world.signing(), first);
    world.tick(1);
    world.reconcile(0);
    assert_ne!(world.signing(), first);
}

#[test]
fn a_deleted_ca_secret_is_an_ordinary_rotation() {
    let mut world = World::new([0, 0]);
    world.reconcile(0);
    let (first, leaf) = (world.signing(), world.leaf());
    world.tick(300);
    world.edit(Edit::DeleteCa);
    world.reconcile(0);
    assert!(world.bundle().contains(&first), "the old CA stays trusted");
    assert_eq!((world.bundle().len(), world.leaf()), (2, leaf.clone()));
    world.tick(DELAY);
    world.reconcile(0);
    assert_ne!(world.leaf(), leaf);
    world.check();
}

#[test]
fn a_damaged_ca_secret_is_left_alone_and_reported() {
    let mut world = World::new([0, 0]);
    world.reconcile(0);
    let (bundle, leaf) = (world.bundle(), world.leaf());
    world.edit(Edit::DamageCa);
    let plan = world.plan(0);
    assert_eq!(plan.step, None);
    let finding = &plan.findings[0];
    assert!(finding.kind.blocks() && finding.message.contains("kubectl delete secret ovn-ca"), "{finding:?}");
    world.tick(2000);
    world.reconcile(0);
    assert_eq!((world.bundle(), world.leaf()), (bundle, leaf));
    assert!(matches!(world.observed().authorities, Stored::Unusable(_)));
    world.edit(Edit::DeleteCa);
    world.settle();
}

#[test]
fn an_expired_certificate_is_renewed_at_once() {
    let mut world = World::new([0, 0]);
    world.reconcile(0);
    let (first, leaf) = (world.signing(), world.leaf());
    // The certificate has expired, its CA has not.
    world.tick(1500);
    world.reconcile(0);
    assert_ne!(world.leaf(), leaf);
    assert_eq!(world.signing(), first);
    // Both have.
    let leaf = world.leaf();
    world.tick(20_000);
    world.reconcile(0);
    assert_ne!(world.signing(), first);
    assert_ne!(world.leaf(), leaf);
    world.settle();
}

#[test]
fn an_administrators_ca_stays_and_one_of_theirs_is_replaced_with_overlap() {
    let mut world = World::new([0, 0]);
    world.bring_your_own();
    let (foreign, leaf) = (world.bundle(), world.leaf());
    world.reconcile(0);
    assert_eq!((world.bundle().len(), world.leaf()), (2, leaf.clone()));
    world.tick(DELAY);
    world.reconcile(0);
    assert_ne!(world.leaf(), leaf);
    for _ in 0..20 {
        world.tick(400);
        world.reconcile(0);
        world.check();
    }
    assert!(world.bundle().contains(&foreign[0]), "it is the administrator's");
}

#[test]
fn former_cas_are_retired_early_on_request() {
    let mut world = World::new([0, 0]);
    world.reconcile(0);
    let first = world.signing();
    world.edit(Edit::RequestCa);
    world.edit(Edit::RequestRetire);
    for _ in 0..4 {
        assert!(world.bundle().contains(&first));
        world.tick(DELAY / 2);
        world.reconcile(0);
        world.check();
    }
    world.tick(DELAY);
    world.reconcile(0);
    assert_eq!(world.bundle(), [world.signing()]);
    assert_eq!(world.observed().authorities.present().unwrap().requests, pki::Requests::default());
}

#[test]
fn nodes_renew_when_their_next_ca_signs_and_then_trust_in_the_former_one_ends() {
    let mut world = World::of(Domain::Nodes, [0, 0]);
    world.reconcile(0);
    let (first, issuers) = (world.signing(), world.issuers());
    assert_eq!((issuers.len(), world.bundle()), (3, vec![first]), "the first certificates need no delay");
    world.edit(Edit::RequestCa);
    world.reconcile(0);
    assert_eq!((world.bundle().len(), world.bundle()[0], world.issuers()), (2, first, issuers.clone()));
    world.tick(DELAY);
    world.reconcile(0);
    let second = world.signing();
    assert_eq!((world.bundle(), second == first), (vec![second, first], false), "the CA that signs comes first");
    // One node has an old ConfigMap.
    assert_eq!(world.issuers().iter().filter(|issuer| issuers.contains(issuer)).count(), 1);
    world.check();
    world.tick(DELAY + 1);
    world.check();
    world.reconcile(0);
    assert!(world.issuers().iter().all(|issuer| !issuers.contains(issuer)));
    world.edit(Edit::RequestRetire);
    world.reconcile(0);
    assert_eq!(world.bundle(), [second]);
    world.settle();
}

#[test]
fn without_a_request_a_former_ca_of_the_nodes_stays_until_its_certificates_have_expired() {
    let mut world = World::of(Domain::Nodes, [0, 0]);
    world.reconcile(0);
    let first = world.signing();
    world.edit(Edit::RequestCa);
    for _ in 0..10 {
        world.reconcile(0);
        world.check();
        world.tick(100);
    }
    assert!(world.bundle().contains(&first));
    world.tick(200);
    world.reconcile(0);
    assert!(!world.bundle().contains(&first));
}

#[test]
fn nodes_that_are_switched_off_delay_a_requested_end_of_trust_but_do_not_prevent_it() {
    let mut world = World::of(Domain::Nodes, [0, 0]);
    world.reconcile(0);
    let first = world.signing();
    world.edit(Edit::RequestCa);
    world.edit(Edit::RequestRetire);
    world.reconcile(0);
    world.switch_off_all_but_one();
    world.tick(DELAY);
    world.reconcile(0);
    for _ in 0..2 {
        world.tick(DELAY);
        world.reconcile(0);
        assert!(world.bundle().contains(&first));
    }
    world.tick(DELAY);
    world.reconcile(0);
    assert!(!world.bundle().contains(&first));
}

#[test]
fn a_deleted_secret_of_the_nodes_ca_asks_no_node_to_renew_before_the_new_one_may_sign() {
    let mut world = World::of(Domain::Nodes, [0, 0]);
    world.reconcile(0);
    let (first, issuers) = (world.signing(), world.issuers());
    world.edit(Edit::DeleteCa);
    world.reconcile(0);
    assert_eq!((world.bundle().len(), world.bundle()[0]), (2, first));
    assert!(!world.plan(0).may_issue);
    world.tick(DELAY);
    world.reconcile(0);
    assert_eq!(world.bundle(), [world.signing(), first]);
    assert_ne!(world.issuers(), issuers);
    world.check();
}
