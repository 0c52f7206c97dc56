use super::*;

const SECOND: Duration = Duration::from_secs(1);
const SWITCH: &str = "ovs-vswitchd.service";
const UMBRELLA: &str = "openvswitch-switch.service";

fn layout() -> Layout {
    Layout::detect(|unit| unit == UMBRELLA).unwrap()
}

fn running() -> Observation {
    let daemon = UnitState::new("loaded", "active", "running", "static", "success", 7);
    let umbrella = UnitState::new("loaded", "active", "exited", "enabled", "success", 0);
    let units = [("ovsdb-server.service", daemon.clone()), (SWITCH, daemon), (UMBRELLA, umbrella)];
    Observation { units: units.map(|(unit, state)| (unit.to_owned(), state)).into(), stopping: false }
}

fn with(unit: &str, change: impl FnOnce(&mut UnitState)) -> Observation {
    let mut seen = running();
    change(seen.units.get_mut(unit).unwrap());
    seen
}

fn texts(decision: &Decision) -> Vec<String> {
    decision.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn running_units_need_nothing() {
    assert_eq!(Supervisor::default().decide(&layout(), &running(), SECOND), Decision::default());
}

#[test]
fn a_disabled_umbrella_is_enabled_and_static_daemons_are_not() {
    let seen = with(UMBRELLA, |unit| unit.file = FileState::Disabled);
    let decision = Supervisor::default().decide(&layout(), &seen, SECOND);
    assert_eq!(decision.actions, [Action::Enable(UMBRELLA.into())]);
    let seen = with(SWITCH, |unit| unit.file = FileState::Disabled);
    assert!(Supervisor::default().decide(&layout(), &seen, SECOND).actions.is_empty());
}

#[test]
fn an_active_umbrella_does_not_hide_a_stopped_daemon() {
    let seen = with(SWITCH, |unit| unit.active = Active::Inactive);
    let decision = Supervisor::default().decide(&layout(), &seen, SECOND);
    assert_eq!(decision.actions, [Action::Start(SWITCH.into())]);
    assert_eq!(texts(&decision), ["ovs-vswitchd.service is stopped; starting it now"]);
}

#[test]
fn a_failed_unit_is_reset_and_started_with_growing_delays() {
    let seen = with(SWITCH, |unit| {
        unit.active = Active::Failed;
        unit.result = "signal".into();
    });
    let (mut supervisor, mut now, mut starts) = (Supervisor::default(), Duration::ZERO, Vec::new());
    for _ in 0..20 {
        let decision = supervisor.decide(&layout(), &seen, now);
        if !decision.actions.is_empty() {
            assert_eq!(decision.actions, [Action::ResetFailed(SWITCH.into()), Action::Start(SWITCH.into())]);
            starts.push(now.as_secs());
        }
        now = decision.wake.unwrap();
    }
    assert_eq!(starts[..9], [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    let decision = supervisor.decide(&layout(), &seen, now - 2 * SECOND);
    assert!(decision.actions.is_empty());
    assert_eq!(
        texts(&decision),
        ["ovs-vswitchd.service failed (signal); starting it in 3s; its log: journalctl -u ovs-vswitchd.service"]
    );
}

#[test]
fn a_unit_that_ran_for_a_while_is_started_at_once_again() {
    let stopped = with(SWITCH, |unit| unit.active = Active::Inactive);
    let mut supervisor = Supervisor::default();
    for second in [0, 1, 3, 7] {
        assert!(!supervisor.decide(&layout(), &stopped, second * SECOND).actions.is_empty(), "{second}");
    }
    let decision = supervisor.decide(&layout(), &running(), 10 * SECOND);
    assert_eq!(decision.wake, Some(70 * SECOND));
    supervisor.decide(&layout(), &running(), 70 * SECOND);
    assert!(!supervisor.decide(&layout(), &stopped, 71 * SECOND).actions.is_empty());
    assert!(!supervisor.decide(&layout(), &stopped, 72 * SECOND).actions.is_empty(), "the first delay again");
}

#[test]
fn masked_missing_and_unreadable_units_are_named_with_the_remedy() {
    for (load, expected) in [
        (
            Load::Masked,
            "ovs-vswitchd.service is masked, so it cannot be started; on the host: systemctl unmask ovs-vswitchd.service",
        ),
        (
            Load::NotFound,
            "the host has no ovs-vswitchd.service; install Open vSwitch on the host, or name its unit with --unit",
        ),
        (
            Load::Other("bad-setting".into()),
            "systemd cannot use the file of ovs-vswitchd.service (bad-setting); on the host: systemctl status ovs-vswitchd.service",
        ),
    ] {
        let seen = with(SWITCH, |unit| (unit.load, unit.active) = (load, Active::Inactive));
        let decision = Supervisor::default().decide(&layout(), &seen, SECOND);
        assert!(decision.actions.is_empty(), "{:?}", decision.actions);
        assert_eq!(texts(&decision), [expected]);
        assert!(!decision.findings[0].problem.is_transient());
    }
}

#[test]
fn a_start_limit_is_named_and_reset() {
    let seen = with(SWITCH, |unit| {
        unit.active = Active::Failed;
        unit.result = "start-limit-hit".into();
    });
    let decision = Supervisor::default().decide(&layout(), &seen, SECOND);
    assert!(decision.actions.contains(&Action::ResetFailed(SWITCH.into())));
    assert_eq!(decision.findings[0].problem.reason(), "UnitStartLimit");
}

#[test]
fn jobs_in_progress_and_shutdowns_are_left_alone() {
    for active in [Active::Activating, Active::Deactivating, Active::Maintenance, Active::Other] {
        let seen = with(SWITCH, |unit| unit.active = active);
        let decision = Supervisor::default().decide(&layout(), &seen, SECOND);
        assert!(decision.actions.is_empty() && !decision.findings.is_empty(), "{active:?}");
    }
    let mut seen = with(SWITCH, |unit| unit.active = Active::Inactive);
    seen.stopping = true;
    let decision = Supervisor::default().decide(&layout(), &seen, SECOND);
    assert!(decision.actions.is_empty());
    assert_eq!(texts(&decision), ["the host is shutting down; nothing is started"]);
}

#[test]
fn a_start_waits_for_jobs_of_the_other_units_and_the_umbrella_for_the_daemons() {
    let mut seen = with(SWITCH, |unit| unit.active = Active::Inactive);
    let umbrella = seen.units.get_mut(UMBRELLA).unwrap();
    umbrella.active = Active::Inactive;
    let decision = Supervisor::default().decide(&layout(), &seen, SECOND);
    assert_eq!(decision.actions, [Action::Start(SWITCH.into())]);
    seen.units.get_mut("ovsdb-server.service").unwrap().active = Active::Deactivating;
    let decision = Supervisor::default().decide(&layout(), &seen, SECOND);
    assert!(decision.actions.is_empty());
    assert!(texts(&decision)[1].ends_with("ovs-vswitchd.service is stopped; starting it after the others"));
    let seen = with(UMBRELLA, |unit| unit.active = Active::Inactive);
    assert_eq!(Supervisor::default().decide(&layout(), &seen, SECOND).actions, [Action::Start(UMBRELLA.into())]);
}

#[test]
fn units_are_detected_or_named() {
    assert_eq!(layout().umbrella(), UMBRELLA);
    let other = Layout::detect(|unit| unit == "openvswitch.service").unwrap();
    assert_eq!(
        other.units().collect::<Vec<_>>(),
        ["ovsdb-server.service", "ovs-vswitchd.service", "openvswitch.service"]
    );
    assert_eq!(Layout::detect(|_| false), Err(LayoutError::NotInstalled));
    let alone = Layout::with_umbrella(SWITCH).unwrap();
    assert_eq!(alone.units().count(), 2, "a daemon's unit may be the one that boot starts");
    for name in ["", ".service", "openvswitch", "a b.service", "../x.service"] {
        assert_eq!(Layout::with_umbrella(name), Err(LayoutError::InvalidName(name.into())));
    }
}

/// Whatever the states are: no panic, nothing is started that is masked or changing, and no start comes before its time.
#[test]
fn any_sequence_of_states_obeys_the_rules() {
    use proptest::prelude::*;
    let word = |words: &'static [&'static str]| proptest::sample::select(words);
    let state = (
        word(&["loaded", "masked", "not-found", "error"]),
        word(&["active", "inactive", "failed", "activating", "deactivating", "x"]),
        word(&["enabled", "disabled", "static", ""]),
        word(&["success", "exit-code", "start-limit-hit"]),
    );
    let steps = proptest::collection::vec((state, 0_u32..100, proptest::bool::weighted(0.1)), 1..60);
    proptest!(|(steps in steps)| {
        let (mut supervisor, mut now, mut last) = (Supervisor::default(), Duration::ZERO, None::<Duration>);
        for ((load, active, file, result), seconds, stopping) in steps {
            now += seconds * SECOND;
            let mut seen = with(SWITCH, |unit| *unit = UnitState::new(load, active, "", file, result, 0));
            seen.stopping = stopping;
            let decision = supervisor.decide(&layout(), &seen, now);
            let starts = decision.actions.contains(&Action::Start(SWITCH.into()));
            let may = load == "loaded" && matches!(active, "inactive" | "failed") && !stopping;
            prop_assert!(!starts || may);
            prop_assert!(!starts || last.is_none_or(|last| now - last >= SECOND));
            if starts {
                last = Some(now);
            }
            prop_assert_eq!(load == "loaded" && active == "active" && !stopping, decision.findings.is_empty());
            prop_assert!(decision.wake.is_none_or(|wake| wake > now));
        }
    });
}
