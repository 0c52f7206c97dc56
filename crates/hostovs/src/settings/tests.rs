use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::units::Daemon;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn shown(desired: &Desired) -> Vec<String> {
    desired.values.iter().map(|(setting, value)| format!("{setting}={value}")).collect()
}

const LIST: &str = "                 console    syslog    file
                 -------    ------    ------
bridge             OFF        ERR       INFO
ofproto_dpif       OFF        ERR       INFO
";

/// A host with a key and a log level of somebody else.
fn host() -> Observed {
    let mut levels = parse_levels(LIST);
    levels.values_mut().for_each(|levels| levels[0] = Level::Emer);
    let mut of_vswitchd = levels.clone();
    of_vswitchd.insert("foreign".to_owned(), [Level::Emer, Level::Err, Level::Info]);
    Observed {
        other_config: map(&[("foreign", "1")]),
        record: String::new(),
        levels: [(Daemon::OvsdbServer, levels), (Daemon::Vswitchd, of_vswitchd)].into(),
    }
}

fn apply(host: &mut Observed, plan: &Plan) {
    host.other_config.extend(plan.set.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    host.other_config.retain(|key, _| !plan.remove.contains(key));
    if let Some(record) = &plan.record {
        host.record.clone_from(record);
    }
    for change in &plan.levels {
        let sink = Sink::ALL.into_iter().position(|sink| sink == change.sink).unwrap();
        host.levels.get_mut(&change.daemon).unwrap().get_mut(&change.module).unwrap()[sink] = change.level;
    }
}

/// Until nothing is left; returns how often something was.
fn reconcile(host: &mut Observed, data: &BTreeMap<String, String>) -> usize {
    let (desired, _) = desired(data, &BTreeMap::new());
    for round in 0..10 {
        let (plan, _) = plan(&desired, host);
        if plan.is_empty() {
            return round;
        }
        apply(host, &plan);
    }
    panic!("no end")
}

#[test]
fn refused_settings_name_what_is_allowed_and_the_others_apply() {
    let data = map(&[
        ("other_config.flow-limit", "400000"),
        ("other_config.max-idle", "soon"),
        ("other_config.flow-restore-wait", "true"),
        ("log.ovs-vswitchd.bridge.file", "loud"),
        ("log.ovn-controller.any.file", "dbg"),
        ("color", "red"),
    ]);
    let (desired, refusals) = desired(&data, &BTreeMap::new());
    assert_eq!(shown(&desired), ["other_config.flow-limit=400000"]);
    let refusals: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    assert!(
        refusals[0].starts_with("color: \"red\" is not applied; allowed: other_config.KEY, log.DAEMON.MODULE.SINK")
    );
    assert!(refusals[1].contains("a daemon ovs-vswitchd or ovsdb-server"), "{}", refusals[1]);
    assert_eq!(
        refusals[2],
        "log.ovs-vswitchd.bridge.file: \"loud\" is not applied; allowed: off, emer, err, warn, info, dbg"
    );
    assert!(refusals[3].contains("allowed: other_config. with flow-limit, max-idle,"), "{}", refusals[3]);
    assert_eq!(
        refusals[4],
        "other_config.max-idle: \"soon\" is not applied; allowed: a whole number from 500 to 3600000"
    );
}

#[test]
fn overrides_apply_by_label_and_in_the_order_of_their_names() {
    let data = map(&[
        ("other_config.flow-limit", "100"),
        ("other_config.max-idle", "1000"),
        ("override.10-a", "nodes: zone in (a, b), !spot\nother_config.flow-limit: 200\nother_config.max-idle: default"),
        ("override.20-b", "# later\nnodes: zone=b\nother_config.flow-limit: 300\nother_config.vlan-limit: 9"),
    ]);
    let with = |labels: &[(&str, &str)]| desired(&data, &map(labels));
    assert_eq!(shown(&with(&[]).0), ["other_config.flow-limit=100", "other_config.max-idle=1000"]);
    assert_eq!(shown(&with(&[("zone", "a")]).0), ["other_config.flow-limit=200"]);
    let (settings, refusals) = with(&[("zone", "b")]);
    assert_eq!(shown(&settings), ["other_config.flow-limit=300"]);
    assert_eq!(refusals[0].key, "override.20-b/other_config.vlan-limit");
    assert_eq!(refusals[0].allowed, "a whole number from 0 to 2, default");
    assert_eq!(with(&[("zone", "a"), ("spot", "")]).0.values.len(), 2);
}

#[test]
fn a_broken_selector_holds_its_settings() {
    for selector in ["", "nodes: a b", "nodes: a in b", "nodes: a in (b", "nodes:", "nodes: =x", "nodes: a,,b"] {
        let text = format!("{selector}\nother_config.flow-limit: 7");
        let data = map(&[("other_config.flow-limit", "100"), ("override.x", &text)]);
        let (desired, refusals) = desired(&data, &BTreeMap::new());
        assert_eq!((desired.values.len(), desired.held.len(), refusals.len()), (0, 1, 1), "{selector}");
    }
}

#[test]
fn an_invalid_update_keeps_the_last_valid_value() {
    let mut host = host();
    reconcile(&mut host, &map(&[("other_config.flow-limit", "100"), ("log.ovs-vswitchd.bridge.file", "dbg")]));
    let before = host.clone();
    let (desired, _) =
        desired(&map(&[("other_config.flow-limit", "x"), ("log.ovs-vswitchd.bridge.file", "x")]), &BTreeMap::new());
    assert!(plan(&desired, &host).0.is_empty());
    assert_eq!(host, before);
    reconcile(&mut host, &BTreeMap::new());
    assert_eq!(host, self::host(), "the record still knew them");
}

#[test]
fn drift_is_corrected_and_foreign_settings_stay() {
    let mut host = host();
    let data = map(&[("other_config.flow-limit", "100"), ("log.ovs-vswitchd.bridge.file", "dbg")]);
    reconcile(&mut host, &data);
    let wanted = host.clone();
    assert_eq!(wanted.record, "log.ovs-vswitchd.bridge.file other_config.flow-limit");
    host.other_config.insert("flow-limit".into(), "5".into());
    host.other_config.insert("other".into(), "2".into());
    host.levels.insert(Daemon::Vswitchd, self::host().levels[&Daemon::Vswitchd].clone());
    host.levels.get_mut(&Daemon::Vswitchd).unwrap().get_mut("foreign").unwrap()[2] = Level::Dbg;
    reconcile(&mut host, &data);
    assert_eq!(host.other_config, map(&[("flow-limit", "100"), ("foreign", "1"), ("other", "2")]));
    assert_eq!(host.levels[&Daemon::Vswitchd]["bridge"][2], Level::Dbg);
    assert_eq!(host.levels[&Daemon::Vswitchd]["foreign"][2], Level::Dbg, "changed by somebody else");
}

#[test]
fn levels_of_a_daemon_that_does_not_answer_are_reset_later() {
    let mut host = host();
    reconcile(&mut host, &map(&[("log.ovsdb-server.any.file", "dbg")]));
    let levels = host.levels.remove(&Daemon::OvsdbServer).unwrap();
    reconcile(&mut host, &BTreeMap::new());
    assert_eq!(host.record, "log.ovsdb-server.any.file");
    host.levels.insert(Daemon::OvsdbServer, levels);
    reconcile(&mut host, &BTreeMap::new());
    assert_eq!(host, self::host());
}

#[test]
fn modules_that_a_daemon_lacks_are_refused() {
    let (desired, _) = desired(&map(&[("log.ovs-vswitchd.brigde.file", "dbg")]), &BTreeMap::new());
    let (_, refusals) = plan(&desired, &host());
    assert_eq!(refusals[0].allowed, "any, and the modules bridge, foreign, ofproto_dpif");
}

fn data() -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = proptest::sample::select(
        &[
            ("other_config.flow-limit", "1000"),
            ("other_config.flow-limit", "2000"),
            ("other_config.hw-offload", "true"),
            ("other_config.pmd-cpu-mask", "0x6"),
            ("log.ovs-vswitchd.any.file", "warn"),
            ("log.ovs-vswitchd.any.file", "dbg"),
            ("log.ovs-vswitchd.bridge.file", "err"),
            ("log.ovs-vswitchd.bridge.syslog", "off"),
            ("log.ovsdb-server.any.console", "info"),
            ("log.ovsdb-server.bridge.console", "dbg"),
        ][..],
    );
    proptest::collection::vec(key, 0..8)
        .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// One after the other gives the same as the last one alone, and a second application changes nothing.
    #[test]
    fn incremental_equals_from_scratch(steps in proptest::collection::vec(data(), 1..6)) {
        let mut host = host();
        for data in &steps {
            prop_assert!(reconcile(&mut host, data) <= 2);
            prop_assert_eq!(reconcile(&mut host, data), 0);
        }
        let mut fresh = self::host();
        reconcile(&mut fresh, steps.last().unwrap());
        prop_assert_eq!(host, fresh);
    }

    #[test]
    fn any_text_causes_no_panic(
        data in proptest::collection::btree_map("(other_config|log|override)\\.[a-z.-]{0,12}|.{0,9}", "(nodes: ?)?.{0,30}\n?.{0,20}", 0..6),
        record in ".{0,40}",
        list in "([a-z]{1,4} +(OFF|ERR|INFO|x) +(OFF|ERR) +DBG\n){0,3}.{0,20}",
    ) {
        let (desired, _) = desired(&data, &map(&[("a", "b")]));
        let levels = [(Daemon::Vswitchd, parse_levels(&list))].into();
        let _ = plan(&desired, &Observed { other_config: data, record, levels });
    }
}
