use super::*;

fn uuid(number: u128) -> Uuid {
    Uuid::from_bytes(number.to_be_bytes())
}

fn record(cluster: u128) -> Record {
    Record::new(uuid(cluster).to_string(), "n1")
}

fn header(cluster: u128, address: &str) -> Header {
    Header {
        name: "OVN_Northbound".into(),
        cluster: Some(uuid(cluster)),
        server: uuid(9),
        address: address.into(),
        joined: true,
        joins_by: Vec::new(),
    }
}

const HERE: &str = "ssl:192.0.2.1:6643";
const OTHER: &str = "ssl:192.0.2.2:6643";

fn decide(file: &FileState, staged: &FileState, record: Option<&Record>) -> Step {
    next(&BootstrapInputs {
        kind: Kind::Northbound,
        path: "/nb.db",
        file,
        staged,
        record,
        address: HERE,
        working: &[OTHER.to_owned()],
    })
}

/// A model of the members' disks and of the API, to run decisions to their end.
#[derive(Default)]
struct World {
    record: Option<Record>,
    /// File and staging file of each member.
    disks: Vec<(Option<u128>, Option<u128>)>,
    /// Clusters whose server was started.
    started: std::collections::BTreeSet<u128>,
    next_cluster: u128,
}

impl World {
    fn state(cluster: Option<u128>) -> FileState {
        cluster.map_or(FileState::Missing, |cluster| FileState::Clustered(header(cluster, HERE)))
    }

    /// One step of a member; `api` is whether the API can be reached.
    fn step(&mut self, member: usize, api: bool) {
        if !api {
            // Without the record nothing is decided.
            return;
        }
        let (file, staged) = self.disks[member];
        match decide(&Self::state(file), &Self::state(staged), self.record.as_ref()) {
            Step::Stage => {
                self.next_cluster += 1;
                self.disks[member].1 = Some(self.next_cluster);
            }
            Step::Publish(cluster) => {
                // The API refuses the second write.
                if self.record.is_none() {
                    let cluster = (1..=self.next_cluster).find(|number| uuid(*number) == cluster).unwrap();
                    self.record = Some(record(cluster));
                }
            }
            Step::Install => self.disks[member] = (staged, None),
            Step::Discard => self.disks[member].1 = None,
            Step::Join(cluster) => {
                let cluster = (1..=self.next_cluster).find(|number| uuid(*number) == cluster).unwrap();
                self.disks[member].0 = Some(cluster);
            }
            Step::Start => {
                self.started.insert(file.unwrap());
            }
            step @ (Step::Rejoin(..) | Step::SetAside | Step::Refuse(_)) => panic!("{step:?}"),
        }
    }
}

/// Any interleaving of three members, with lost volumes and an unreachable API in between, starts one cluster.
#[test]
fn at_most_one_cluster_ever_starts() {
    for seed in 0..20_000_u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) % below
        };
        let mut world = World { disks: vec![(None, None); 3], ..World::default() };
        for _ in 0..40 {
            let member = draw(3) as usize;
            match draw(12) {
                0 => world.disks[member] = (None, None),
                event => world.step(member, event != 1),
            }
        }
        assert!(world.started.len() <= 1, "seed {seed}: clusters {:?} started", world.started);
        // Undisturbed, every member ends up in it.
        for _ in 0..10 {
            (0..3).for_each(|member| world.step(member, true));
        }
        assert_eq!(world.started.len(), 1, "seed {seed}");
    }
}

#[test]
fn a_member_of_the_recorded_cluster_starts_and_any_other_file_is_refused() {
    let own = FileState::Clustered(header(1, HERE));
    let missing = FileState::Missing;
    assert_eq!(decide(&own, &missing, Some(&record(1))), Step::Start);
    assert_eq!(decide(&own, &missing, None), Step::Publish(uuid(1)));
    let refusal = |file: &FileState, record: Option<&Record>| match decide(file, &missing, record) {
        Step::Refuse(problem) => problem.to_string(),
        step => panic!("{step:?}"),
    };
    assert!(refusal(&own, Some(&record(2))).contains("belongs to cluster"));
    assert!(refusal(&FileState::Damaged("empty".into()), None).contains("is damaged (empty)"));
    assert!(refusal(&FileState::Standalone("OVN_Northbound".into()), None).contains("standalone"));
    let southbound = FileState::Clustered(Header { name: "OVN_Southbound".into(), ..header(1, HERE) });
    assert!(refusal(&southbound, None).contains("is database OVN_Southbound, not OVN_Northbound"));
}

#[test]
fn an_address_change_needs_other_members() {
    let file = FileState::Clustered(header(1, "ssl:192.0.2.7:6643"));
    let staged = FileState::Missing;
    let record = record(1);
    let (some, none) = ([OTHER.to_owned()], []);
    let inputs = |has_peers| BootstrapInputs {
        kind: Kind::Northbound,
        path: "/nb.db",
        file: &file,
        staged: &staged,
        record: Some(&record),
        address: HERE,
        working: if has_peers { &some } else { &none },
    };
    assert!(matches!(next(&inputs(true)), Step::Rejoin(_, RejoinReason::AddressChanged)));
    assert_eq!(next(&inputs(false)), Step::Start);
}

#[test]
fn members_of_a_replaced_cluster_join_the_new_one() {
    let file = FileState::Clustered(header(1, HERE));
    let mut record = record(2);
    assert!(matches!(decide(&file, &FileState::Missing, Some(&record)), Step::Refuse(_)));
    record.replaced = vec![uuid(1).to_string()];
    // The record may name a cluster that does not exist.
    let alone = |staged: &FileState| {
        let (kind, record) = (Kind::Northbound, Some(&record));
        next(&BootstrapInputs { kind, path: "/nb.db", file: &file, staged, record, address: HERE, working: &[] })
    };
    assert!(matches!(alone(&FileState::Missing), Step::Refuse(Problem::Replaced { .. })));
    let step = decide(&file, &FileState::Missing, Some(&record));
    assert!(matches!(step, Step::Rejoin(_, RejoinReason::ClusterReplaced)), "{step:?}");
    // The one that created it installs it.
    let staged = FileState::Clustered(header(2, HERE));
    assert!(matches!(alone(&staged), Step::Rejoin(_, RejoinReason::ClusterReplaced)));
    assert_eq!(decide(&FileState::Missing, &staged, Some(&record)), Step::Install);
    let damaged = FileState::Damaged("empty".into());
    assert_eq!(decide(&damaged, &staged, Some(&record)), Step::SetAside);
    assert!(matches!(decide(&damaged, &FileState::Missing, Some(&record)), Step::Refuse(_)));
}

#[test]
fn a_server_that_the_leader_removed_joins_again_if_a_member_works() {
    let (file, staged) = (FileState::Clustered(header(1, HERE)), FileState::Missing);
    let mut record = record(1);
    let (some, none) = ([OTHER.to_owned()], []);
    let decide = |record: &Record, has_peers| {
        let kind = Kind::Northbound;
        next(&BootstrapInputs {
            kind,
            path: "/nb.db",
            file: &file,
            staged: &staged,
            record: Some(record),
            address: HERE,
            working: if has_peers { &some } else { &none },
        })
    };
    assert_eq!(decide(&record, true), Step::Start);
    let server = uuid(9).to_string()[..4].to_owned();
    record.removed = vec![crate::record::RemovedServer { server, address: HERE.into() }];
    assert_eq!(decide(&record, false), Step::Start, "its file may be the last one");
    assert!(matches!(decide(&record, true), Step::Rejoin(_, RejoinReason::Removed)));
    record.removed[0].address = "ssl:192.0.2.9:6643".into();
    assert_eq!(decide(&record, true), Step::Start);
}

/// Members that join by each other never learn of the one that works.
#[test]
fn a_member_that_joins_in_vain_joins_again_by_one_that_works() {
    let (kind, record, missing) = (Kind::Northbound, record(1), FileState::Missing);
    let pending = |address: &str, joins_by: &str| {
        let header = Header { joined: false, joins_by: vec![joins_by.to_owned()], ..header(1, address) };
        FileState::Clustered(header)
    };
    let decide = |file: &FileState, working: &[&str]| {
        let working: Vec<String> = working.iter().map(ToString::to_string).collect();
        let record = Some(&record);
        next(&BootstrapInputs {
            kind,
            path: "/nb.db",
            file,
            staged: &missing,
            record,
            address: HERE,
            working: &working,
        })
    };
    assert_eq!(decide(&missing, &[OTHER]), Step::Join(uuid(1)));
    assert_eq!(decide(&missing, &[]), Step::Join(uuid(1)));

    let third = "ssl:192.0.2.3:6643";
    assert_eq!(decide(&pending(HERE, OTHER), &[OTHER]), Step::Start);
    assert_eq!(decide(&pending(HERE, OTHER), &[]), Step::Start, "the one it joins by may return");
    assert_eq!(decide(&pending(HERE, "tcp:192.0.2.2:6643"), &[OTHER]), Step::Start, "only the scheme differs");
    let reason = |file: &FileState| match decide(file, &[third]) {
        Step::Rejoin(_, reason) => reason,
        step => panic!("{step:?}"),
    };
    assert_eq!(reason(&pending(HERE, OTHER)), RejoinReason::PeersChanged);
    assert_eq!(reason(&pending("ssl:192.0.2.7:6643", third)), RejoinReason::AddressChanged);
}
