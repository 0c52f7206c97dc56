//! The test: every attempt of every account, compared with the document.

use crate::report::{Report, Scope};
use crate::site::Site;
use crate::{accounts, signer, southbound, tenant};

/// What an attempt may do is in `docs/security.md`; a change of it must be reviewed there. Whatever the document says, nothing
/// foreign may be written by an account of ours.
#[test]
fn no_account_writes_what_is_not_its_own() {
    let site = Site::start();
    let (mut report, mut of_tenant) = (Report::default(), Report::default());
    // First: what the accounts write breaks the network of these objects.
    tenant::attack(&site, &mut of_tenant);
    // Objects are compared before and after each attempt: nobody else may change nodes whose kubelets are silent.
    let _paused = site.cluster.lab.pause("kube-controller-manager").unwrap();
    accounts::node(&site, &mut report);
    accounts::controller(&site, &mut report);
    signer::attack(&site, &mut report);
    report.append(of_tenant);
    southbound::permissions(&site, &mut report);
    let foreign: Vec<&String> = report
        .attempts
        .iter()
        .filter(|(scope, _, done)| *scope == Scope::Foreign && *done)
        .map(|(_, what, _)| what)
        .collect();
    assert!(foreign.is_empty(), "foreign writes: {foreign:#?}");
    let own: Vec<&String> = report
        .attempts
        .iter()
        .filter(|(scope, _, done)| *scope == Scope::Own && !done)
        .map(|(_, what, _)| what)
        .collect();
    assert!(own.is_empty(), "writes that ovnkube needs were refused: {own:#?}");
    report.compare_with_document("attack matrix", "attack");
}
