//! For each alert, metrics of a fault and of its end, in the notation of promtool: one sample per minute; `1x3` is 1 and
//! three repetitions, `0+10x3` grows by 10, `stale` is a target that was lost.

/// An alert with the metrics that make it fire.
pub(crate) struct Case {
    pub(crate) alert: &'static str,
    /// Series and their samples; the label `namespace` is added to each.
    pub(crate) series: &'static [(&'static str, &'static str)],
    /// Minutes at which it does not fire yet, fires, and is resolved.
    pub(crate) quiet: u32,
    pub(crate) fires: u32,
    pub(crate) resolved: u32,
}

const fn case(
    alert: &'static str,
    [quiet, fires, resolved]: [u32; 3],
    series: &'static [(&'static str, &'static str)],
) -> Case {
    Case { alert, series, quiet, fires, resolved }
}

pub(crate) const CASES: &[Case] = &[
    // Controller. From minute 21 to 41, no change is in time.
    case(
        "OvnkubeSlowPropagation",
        [20, 41, 55],
        &[
            (
                r#"ovnkube_controller_propagation_seconds_bucket{stage="northbound", le="5.0"}"#,
                "0+10x20 200x20 210+10x130",
            ),
            (r#"ovnkube_controller_propagation_seconds_count{stage="northbound"}"#, "0+10x170"),
        ],
    ),
    case(
        "OvnkubeSlowPropagationLasting",
        [20, 60, 100],
        &[
            (r#"ovnkube_controller_propagation_seconds_bucket{stage="nodes", le="5.0"}"#, "0+10x20 200x40 210+10x110"),
            (r#"ovnkube_controller_propagation_seconds_count{stage="nodes"}"#, "0+10x170"),
        ],
    ),
    case(
        "OvnkubeNoLeader",
        [4, 8, 14],
        &[(r#"ovnkube_controller_leader{pod="a"}"#, "1x4 0x5 1x10"), (r#"ovnkube_controller_leader{pod="b"}"#, "0x20")],
    ),
    // No controller is scraped any more.
    case("OvnkubeNoLeader", [4, 9, 14], &[(r#"ovnkube_controller_leader{pod="a"}"#, "1x4 stale _x5 1x10")]),
    case("OvnkubeParkedObjects", [12, 20, 26], &[(r#"ovnkube_controller_parked_objects{kind="Pod"}"#, "0x2 1x20 0x5")]),
    case("OvnkubeParkedNode", [6, 10, 16], &[(r#"ovnkube_controller_parked_objects{kind="Node"}"#, "0x2 1x10 0x5")]),
    case("OvnkubeTransactionsRefused", [15, 24, 45], &[("ovnkube_controller_nb_refused_total", "0x5 1+1x20 21x40")]),
    case("OvnkubeNodeDoesNotAnswer", [4, 6, 10], &[("ovnkube_controller_nb_cfg_lag_seconds", "0x2 60+60x5 0x5")]),
    case("OvnkubeNorthdStuck", [3, 5, 9], &[("ovnkube_controller_northd_behind_seconds", "0x2 60x4 0x5")]),
    case("OvnkubeLeaseNotRenewed", [3, 5, 9], &[("ovnkube_controller_lease_unrenewed_seconds", "0x2 90x4 0x5")]),
    // The first restored row of a table begins its series; a later one increases it.
    case(
        "OvnkubeRowsRestored",
        [4, 7, 25],
        &[(r#"ovnkube_controller_nb_rows_restored_total{table="ACL"}"#, "_x5 1x60")],
    ),
    case(
        "OvnkubeRowsRestored",
        [25, 33, 50],
        &[(r#"ovnkube_controller_nb_rows_restored_total{table="ACL"}"#, "0x30 5x40")],
    ),
    case(
        "OvnkubePortClaimedByOtherChassis",
        [5, 8, 25],
        &[("ovnkube_controller_port_binding_conflicts_total", "0x5 3x40")],
    ),
    // It does not fall; or it falls once and grows all the same.
    case("OvnkubeQuarantineStuck", [40, 48, 70], &[("ovnkube_controller_quarantined_addresses", "0x5 7x60 0x10")]),
    case(
        "OvnkubeQuarantineStuck",
        [5, 75, 85],
        &[("ovnkube_controller_quarantined_addresses", "60+2x40 130+2x40 0x10")],
    ),
    case(
        "OvnkubeSubnetsNearlyExhausted",
        [15, 22, 29],
        &[
            ("ovnkube_clustermanager_allocated_v4_host_subnets", "400x5 470x20 400x10"),
            ("ovnkube_clustermanager_num_v4_host_subnets", "512x40"),
            ("ovnkube_clustermanager_allocated_v6_host_subnets", "0x40"),
            ("ovnkube_clustermanager_num_v6_host_subnets", "0x40"),
        ],
    ),
    case(
        "OvnkubeSlowPodCreation",
        [9, 35, 75],
        &[
            (r#"ovnkube_controller_pod_creation_latency_seconds_bucket{le="2.0"}"#, "0+10x10 100x30 110+10x60"),
            ("ovnkube_controller_pod_creation_latency_seconds_count", "0+10x110"),
        ],
    ),
    case("OvnkubeApiWritesFail", [15, 25, 50], &[("ovnkube_resource_retry_failures_total", "0x5 60+60x30 1860x30")]),
    // Databases.
    case(
        "OvnkubeDatabaseNoLeader",
        [4, 9, 14],
        &[
            (r#"ovn_db_cluster_term{db_name="OVN_Northbound", instance="a"}"#, "5x20"),
            (
                r#"ovn_db_cluster_server_role{db_name="OVN_Northbound", instance="a", server_role="leader"}"#,
                "1x4 stale _x5 1x10",
            ),
        ],
    ),
    case(
        "OvnkubeDatabaseNoQuorum",
        [3, 6, 11],
        &[
            (r#"ovn_db_problem{db_name="OVN_Northbound", instance="a", problem="NoQuorum"}"#, "0x3 1x5 0x5"),
            (r#"ovn_db_problem{db_name="OVN_Northbound", instance="b", problem="NoQuorum"}"#, "0x2 1x6 0x5"),
        ],
    ),
    // The only member whose server runs has no quorum.
    case(
        "OvnkubeDatabaseNoQuorum",
        [3, 6, 11],
        &[
            (r#"ovn_db_problem{db_name="OVN_Northbound", instance="a", problem="NoQuorum"}"#, "0x15"),
            (r#"ovn_db_problem{db_name="OVN_Northbound", instance="a", problem="NotRunning"}"#, "0x2 1x6 0x5"),
            (r#"ovn_db_problem{db_name="OVN_Northbound", instance="b", problem="NoQuorum"}"#, "0x2 1x6 0x5"),
        ],
    ),
    case(
        "OvnkubeDatabaseNoActiveServer",
        [3, 6, 11],
        &[
            (r#"ovn_db_active{db_name="OVN_Northbound", instance="a"}"#, "1x2 0x12"),
            (r#"ovn_db_active{db_name="OVN_Northbound", instance="b"}"#, "0x8 1x6"),
        ],
    ),
    case(
        "OvnkubeDatabaseBackupNotReplicating",
        [7, 12, 18],
        &[
            (r#"ovn_db_active{db_name="OVN_Northbound", instance="a"}"#, "1x20"),
            (r#"ovn_db_active{db_name="OVN_Northbound", instance="b"}"#, "0x20"),
            (r#"ovn_db_replicating{db_name="OVN_Northbound", instance="a"}"#, "0x20"),
            (r#"ovn_db_replicating{db_name="OVN_Northbound", instance="b"}"#, "1x3 0x11 1x5"),
        ],
    ),
    case("OvnkubeRelayDisconnected", [5, 7, 11], &[(r#"ovn_db_relay_connected{instance="a"}"#, "1x3 0x5 1x5")]),
    // At 45 minutes half of the time between renewal (30) and end (60) has passed; at minute 53 it was renewed.
    case(
        "OvnkubePkiCertificateExpiresSoon",
        [48, 52, 56],
        &[
            (r#"ovnkube_pki_certificate_expiry_timestamp_seconds{certificate="ca"}"#, "3600x52 9000x20"),
            (r#"ovnkube_pki_certificate_renewal_timestamp_seconds{certificate="ca"}"#, "1800x52 7200x20"),
        ],
    ),
    case(
        "OvnkubePkiNodeCertificateExpiresSoon",
        [48, 52, 56],
        &[
            (r#"ovnkube_pki_chassis_earliest_expiry_timestamp_seconds{certificate="chassis"}"#, "3600x52 9000x20"),
            (r#"ovnkube_pki_chassis_earliest_renewal_timestamp_seconds{certificate="chassis"}"#, "1800x52 7200x20"),
        ],
    ),
    case(
        "OvnkubePkiRequestsDenied",
        [5, 8, 40],
        &[(r#"ovnkube_pki_chassis_requests_denied_total{reason="ChassisHeld", instance="a"}"#, "0x5 1x60")],
    ),
    case(
        "OvnkubePkiRenewalFailing",
        [14, 30, 50],
        &[("ovnkube_pki_reconciliation_failures_total", "0x5 5+5x25 130x30")],
    ),
    case("OvnkubePkiBlocked", [6, 10, 16], &[(r#"ovnkube_pki_problem{reason="AuthorityUnusable"}"#, "0x2 1x10 0x5")]),
    case("OvnkubePkiNoSigner", [10, 15, 20], &[(r#"ovnkube_pki_leader{pod="a"}"#, "1x3 0x14 1x5")]),
    case(
        "OvnkubeDatabaseNotRunning",
        [5, 7, 11],
        &[(r#"ovn_db_problem{db_name="OVN_Northbound", instance="a", problem="NotRunning"}"#, "0x3 1x5 0x5")],
    ),
    case(
        "OvnkubeDatabaseQuorumAtRisk",
        [5, 7, 11],
        &[(r#"ovn_db_problem{db_name="OVN_Northbound", instance="a", problem="QuorumAtRisk"}"#, "0x3 1x5 0x5")],
    ),
    case(
        "OvnkubeDatabaseDiskAlmostFull",
        [7, 10, 14],
        &[(r#"ovn_db_problem{db_name="OVN_Northbound", instance="a", problem="DiskAlmostFull"}"#, "0x3 1x8 0x5")],
    ),
    case(
        "OvnkubeDatabaseSlowDisk",
        [14, 25, 45],
        &[(r#"ovn_db_problem{db_name="OVN_Northbound", instance="a", problem="SlowDisk"}"#, "0x10 1x20 0x30")],
    ),
    case(
        "OvnkubeDatabaseServerRestarting",
        [5, 9, 28],
        &[(r#"ovn_db_server_restarts_total{db_name="OVN_Northbound", instance="a"}"#, "0x5 2x1 4x40")],
    ),
    case(
        "OvnkubeDatabaseMemberBlocked",
        [4, 7, 11],
        &[(r#"ovn_db_problem{db_name="OVN_Northbound", instance="a", problem="DamagedFile"}"#, "0x3 1x5 0x5")],
    ),
    case(
        "OvnkubeDatabaseNoReply",
        [7, 10, 14],
        &[(r#"ovn_db_problem{db_name="OVN_Northbound", instance="a", problem="NoReply"}"#, "0x3 1x8 0x5")],
    ),
    case(
        "OvnkubeDatabaseServerOverloaded",
        [14, 25, 45],
        &[(r#"ovn_db_problem{db_name="OVN_Northbound", instance="a", problem="HighCpu"}"#, "0x10 1x20 0x30")],
    ),
    case(
        "OvnkubeDatabaseClockJump",
        [2, 5, 14],
        &[(r#"ovn_db_problem{db_name="OVN_Northbound", instance="a", problem="ClockJump"}"#, "0x3 1x8 0x5")],
    ),
    case(
        "OvnkubeDatabaseSchemaNotCurrent",
        [60, 70, 85],
        &[(r#"ovn_db_problem{db_name="OVN_Northbound", instance="a", problem="SchemaNewer"}"#, "0x3 1x72 0x20")],
    ),
    case(
        "OvnkubeDatabaseAdvice",
        [60, 70, 85],
        &[(r#"ovn_db_problem{db_name="OVN_Northbound", instance="a", problem="KnownRaftBugs"}"#, "0x3 1x72 0x20")],
    ),
    // Node agents.
    case("OvnkubeNodeNetworkNotReady", [7, 10, 14], &[(r#"ovnkube_node_ready{instance="a"}"#, "1x3 0x8 1x5")]),
    case("OvnkubeFlowsDeleted", [38, 43, 75], &[(r#"ovnkube_node_flow_deletions_total{instance="a"}"#, "0x40 1x60")]),
    case(
        "OvnkubePodsAreNotWired",
        [10, 20, 45],
        &[
            (
                r#"ovnkube_node_cni_request_duration_seconds_count{instance="a", command="ADD", err="true"}"#,
                "0x5 1+1x20 21x40",
            ),
            (r#"ovnkube_node_cni_request_duration_seconds_count{instance="a", command="ADD", err="false"}"#, "0x70"),
        ],
    ),
    case(
        "OvnkubePodsAreWiredSlowly",
        [9, 35, 75],
        &[
            (
                r#"ovnkube_node_cni_request_duration_seconds_bucket{instance="a", command="ADD", err="false", le="5.0"}"#,
                "0+10x10 100x30 110+10x60",
            ),
            (
                r#"ovnkube_node_cni_request_duration_seconds_count{instance="a", command="ADD", err="false"}"#,
                "0+10x110",
            ),
        ],
    ),
    case(
        "OvnkubePodsWithoutNetwork",
        [3, 6, 10],
        &[(r#"ovnkube_node_pods_without_network{instance="a"}"#, "0x3 1x4 0x5")],
    ),
    case(
        "OvnkubePodPortsAreDeleted",
        [5, 7, 70],
        &[(r#"ovnkube_node_pod_ports_recreated_total{instance="a"}"#, "0x5 1x80")],
    ),
    case(
        "OvnkubeNodeCertificateFailing",
        [12, 22, 30],
        &[
            (r#"ovnkube_node_certificate_failures_total{instance="a"}"#, "0x5 1+1x20 21x40"),
            (r#"ovnkube_node_certificate_renewals_total{instance="a"}"#, "1x25 2x40"),
        ],
    ),
    // At 37.5 minutes a quarter of the time between renewal (30) and end (60) has passed; at minute 46 it was renewed.
    case(
        "OvnkubeNodeCertificateNotRenewed",
        [41, 45, 50],
        &[
            (r#"ovnkube_node_certificate_expiry_timestamp_seconds{instance="a"}"#, "3600x45 9000x20"),
            (r#"ovnkube_node_certificate_renewal_timestamp_seconds{instance="a"}"#, "1800x45 7200x20"),
        ],
    ),
];
