//! Injects faults, each observed to be in effect, and undoes them.

use std::time::Duration;

use lab::Lab;

use crate::fault::{Direction, Fault, Point, Target};
use crate::members::{COUNT, LIMIT, Members, machine, until};
use crate::writer::{Writer, write_switch};

/// Batches that are written while a fault lasts: about two seconds, longer than an election.
const DURING: u64 = 40;
/// Batches that are written after a fault, before the next one.
const AFTER: u64 = 10;
/// Limit of a write through a server that may crash.
const FOLLOWER_LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct Injector<'a> {
    pub(crate) members: &'a mut Members,
    pub(crate) writer: &'a Writer,
    /// Number of the next write through a follower.
    pub(crate) follower_writes: u64,
}

impl Injector<'_> {
    /// Injects a fault, waits until it is over and everything works again.
    pub(crate) fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::KillServer(target) => self.kill_server(target),
            Fault::KillMember(target) => self.kill_member(target),
            Fault::StopServer(target) => self.stop_server(target),
            Fault::HangServer(target) => self.hang_server(target),
            Fault::CutOff(target) => self.cut_off(target, &|lab, one, other| vec![lab.partition(one, other).unwrap()]),
            Fault::CutOffOneWay(target, Direction::Outgoing) => {
                self.cut_off(target, &|lab, one, other| vec![lab.partition_one_way(one, other).unwrap()]);
            }
            Fault::CutOffOneWay(target, Direction::Incoming) => {
                self.cut_off(target, &|lab, one, other| vec![lab.partition_one_way(other, one).unwrap()]);
            }
            Fault::Restart(target) => self.restart(target),
            Fault::Compact(target) => self.compact(target),
            Fault::LoseVolume(target) => {
                let member = self.members.target(target);
                self.lose_volume(member);
            }
            Fault::Readdress(target) => self.readdress(target),
            Fault::Rename => self.rename(),
            Fault::FailurePoint(point) => self.fail_at(point),
        }
        self.members.await_whole();
        self.await_transactions(AFTER);
    }

    /// Waits until writes are acknowledged.
    fn await_transactions(&self, count: u64) {
        let written = self.writer.await_transactions(count, LIMIT);
        assert!(written, "no {count} transactions were written within {LIMIT:?}:\n{}", self.members.describe());
    }

    fn kill_server(&self, target: Target) {
        let member = self.members.target(target);
        let process = self.members.await_server(member);
        assert!(self.members.signal(member, process, "KILL"));
        self.members.await_new_server(member, process);
    }

    fn kill_member(&mut self, target: Target) {
        let member = self.members.target(target);
        self.members.kill(member);
        self.await_transactions(AFTER);
        self.members.start_manager(member);
    }

    fn stop_server(&self, target: Target) {
        let member = self.members.target(target);
        let process = self.members.await_server(member);
        assert!(self.members.signal(member, process, "STOP"));
        until("the server is stopped", LIMIT, || (self.members.process_state(member, process) == "T").then_some(()));
        self.await_transactions(DURING);
        // On a busy machine its manager may have found that it hangs, and replaced it.
        let continued = self.members.signal(member, process, "CONT");
        assert!(continued || self.members.server(member) != Some(process));
    }

    fn hang_server(&self, target: Target) {
        let member = self.members.target(target);
        let process = self.members.await_server(member);
        assert!(self.members.signal(member, process, "STOP"));
        self.members.await_new_server(member, process);
    }

    fn cut_off(&self, target: Target, cut: &dyn Fn(&Lab, &str, &str) -> Vec<lab::DropRules>) {
        let member = self.members.target(target);
        let name = machine(member);
        let cuts: Vec<_> =
            Members::others(member).flat_map(|other| cut(&self.members.lab, &name, &machine(other))).collect();
        self.await_transactions(DURING);
        let dropped: u64 = cuts.iter().map(|cut| cut.dropped().unwrap()).sum();
        assert!(dropped > 0, "{name} was not cut off: no packet was dropped");
        cuts.into_iter().for_each(|cut| cut.heal().unwrap());
    }

    fn restart(&mut self, target: Target) {
        let member = self.members.target(target);
        self.members.terminate(member);
        self.members.start_manager(member);
    }

    fn compact(&self, target: Target) {
        let member = self.members.target(target);
        let first = |members: &Members| members.status(member).map(|status| status.log.0);
        let before = until("the server replies", LIMIT, || first(self.members));
        // Without entries since the last snapshot there is nothing to compact.
        self.await_transactions(1);
        // A leader refuses until another one took over.
        until("the file is compacted", LIMIT, || {
            let _ = self.members.compact(member);
            first(self.members).filter(|now| *now > before)
        });
    }

    /// The member joins again as a new server, and the leader removes the old one.
    fn lose_volume(&mut self, member: usize) {
        let server = |members: &Members| members.status(member).map(|status| status.server);
        let before = until("the server replies", LIMIT, || server(self.members));
        self.members.kill(member);
        self.members.lose_volume(member);
        self.await_transactions(AFTER);
        self.members.start_manager(member);
        until("the member joined as a new server", LIMIT, || server(self.members).filter(|now| *now != before));
    }

    fn readdress(&mut self, target: Target) {
        let member = self.members.target(target);
        self.members.terminate(member);
        self.members.change_address(member);
        self.members.start_manager(member);
        let host = self.members.host(member).to_owned();
        until("the member has its new address", LIMIT, || {
            self.members.status(member).filter(|status| status.is_member() && status.address.contains(&host))
        });
    }

    fn rename(&mut self) {
        let all = || 0..COUNT;
        let former: Vec<String> = all().map(|member| self.members.host(member).to_owned()).collect();
        all().for_each(|member| self.members.terminate(member));
        all().for_each(|member| self.members.change_address(member));
        let pair = |member: usize| format!("{}={}", former[member], self.members.host(member));
        let renaming: Vec<String> = all().map(pair).collect();
        all().for_each(|member| self.members.rename(member, &renaming));
        all().for_each(|member| self.members.start_manager(member));
        for member in all() {
            let host = self.members.host(member).to_owned();
            until("the member has its new name", LIMIT, || {
                self.members.status(member).filter(|status| status.is_member() && status.address.contains(&host))
            });
        }
    }

    fn fail_at(&mut self, point: Point) {
        let leader = self.members.await_leader();
        let [follower, other] = [0, 1].map(|index| self.members.target(Target::Follower(index)));
        match point {
            Point::CrashBeforeAppendRequest | Point::CrashAfterAppendRequest => self.crash(leader, point, |_| ()),
            Point::CrashAfterAppendUpdate => self.crash(follower, point, |_| ()),
            Point::CrashBeforeExecuteRequest | Point::CrashAfterExecuteRequest => {
                self.crash(follower, point, |this| this.write_through(follower));
                self.finish_follower_write();
            }
            Point::CrashBeforeExecuteReply | Point::CrashAfterExecuteReply => {
                self.crash(leader, point, |this| this.write_through(follower));
                self.finish_follower_write();
            }
            Point::CrashBeforeSnapshotReply => self.crash_at_join(follower, point),
            Point::DelayElection => self.delay_election(leader, [follower, other]),
            Point::DontSendVoteRequest => self.withhold_vote_requests(leader, [follower, other]),
            Point::StopRaftRpc => self.stop_rpc(leader),
            Point::TransferLeadership | Point::TransferAfterAppendRequest => self.new_term(leader, point, |_| ()),
            Point::TransferAfterStartingToAdd => self.new_term(leader, point, |this| this.lose_volume(follower)),
        }
    }

    fn arm(&self, member: usize, point: &str) {
        let armed = self.members.control(member, "cluster/failure-test", &[point]);
        assert!(armed.is_ok(), "{point} on {}: {armed:?}", machine(member));
    }

    /// The server crashes at the point, at the latest after `trigger`, and is started again by its manager.
    fn crash(&mut self, member: usize, point: Point, trigger: impl FnOnce(&mut Self)) {
        let process = self.members.await_server(member);
        self.arm(member, point.name());
        trigger(self);
        self.members.await_new_server(member, process);
    }

    /// A write that a follower forwards to the leader.
    fn write_through(&mut self, follower: usize) {
        let remote = self.members.remote(follower);
        let written = self.members.block_on(write_switch(&remote, self.follower_writes, FOLLOWER_LIMIT));
        if let Ok(name) = written {
            self.writer.ledger().acknowledge_follower(name);
        }
    }

    /// Writes the same again, until it is acknowledged: it must exist exactly once.
    fn finish_follower_write(&mut self) {
        let remote = self.members.remotes();
        let name = until("the write through the follower is acknowledged", LIMIT, || {
            self.members.block_on(write_switch(&remote, self.follower_writes, FOLLOWER_LIMIT)).ok()
        });
        self.writer.ledger().acknowledge_follower(name);
        self.follower_writes += 1;
    }

    /// A server that joins gets a snapshot; it is cut off until it is armed.
    fn crash_at_join(&mut self, member: usize, point: Point) {
        self.members.kill(member);
        self.members.lose_volume(member);
        let name = machine(member);
        let cut = |other: usize| self.members.lab.partition(&name, &machine(other)).unwrap();
        let cuts: Vec<_> = Members::others(member).map(cut).collect();
        self.members.start_manager(member);
        until("the joining server is armed", LIMIT, || {
            self.members.control(member, "cluster/failure-test", &[point.name()]).ok()
        });
        let process = self.members.await_server(member);
        cuts.into_iter().for_each(|cut| cut.heal().unwrap());
        self.members.await_new_server(member, process);
    }

    /// Followers wait for one election timer longer before they start an election; their logs say for how long they did.
    fn delay_election(&mut self, leader: usize, followers: [usize; 2]) {
        let status = |members: &Members, member| until("the server replies", LIMIT, || members.status(member));
        let timer = status(self.members, leader).election_timer;
        for member in followers {
            self.arm(member, Point::DelayElection.name());
            // A timer that was set before is not delayed; each entry of the log sets it again.
            let heard = status(self.members, member).log.1;
            until("the armed server hears of the leader", LIMIT, || {
                self.members.status(member).filter(|now| now.log.1 > heard)
            });
        }
        // Not before: on a busy machine there are elections by themselves, which were not delayed.
        let started = self.count_elections(followers);
        // With its manager: a server that starts again is not armed, and would be elected first.
        self.members.kill(leader);
        until("an armed server leads", LIMIT, || {
            followers.iter().find(|member| self.members.status(**member).is_some_and(|status| status.is_leader()))
        });
        let waits = |index: usize| election_waits(&self.members.log(followers[index])).split_off(started[index]);
        // The line reaches the log through the manager, a moment later.
        let waits: Vec<u64> = until("an election is in the logs", LIMIT, || {
            Some([0, 1].into_iter().flat_map(waits).collect::<Vec<u64>>()).filter(|waits| !waits.is_empty())
        });
        assert!(waits.iter().all(|wait| *wait >= 2 * timer), "not delayed: {waits:?} ms");
        followers.iter().for_each(|member| self.arm(*member, "clear"));
        self.members.start_manager(leader);
    }

    /// The elections that the logs of these members have so far. From now on they have every one: by default a server logs
    /// five, and then one a minute.
    fn count_elections(&self, members: [usize; 2]) -> [usize; 2] {
        members.map(|member| {
            let unlimited = self.members.control(member, "vlog/disable-rate-limit", &["raft"]);
            assert!(unlimited.is_ok(), "vlog/disable-rate-limit on {}: {unlimited:?}", machine(member));
            election_waits(&self.members.log(member)).len()
        })
    }

    /// Followers start elections, but ask nobody for a vote: they win none until the former leader is back.
    fn withhold_vote_requests(&mut self, leader: usize, followers: [usize; 2]) {
        let started = self.count_elections(followers);
        followers.iter().for_each(|member| self.arm(*member, Point::DontSendVoteRequest.name()));
        self.members.kill(leader);
        // The second one means that the first one was not won, although the other server was there to vote.
        until("an armed server starts a second election", LIMIT, || {
            let again =
                |index: &usize| election_waits(&self.members.log(followers[*index])).len() >= started[*index] + 2;
            (0..followers.len()).find(again)
        });
        self.members.start_manager(leader);
        assert_eq!(self.members.await_leader(), leader, "an armed server was elected");
        followers.iter().for_each(|member| self.arm(*member, "clear"));
    }

    /// The leader neither reads nor sends messages of raft; the others elect another one.
    fn stop_rpc(&mut self, leader: usize) {
        self.arm(leader, Point::StopRaftRpc.name());
        until("another member leads", LIMIT, || {
            Members::others(leader).find(|other| self.members.status(*other).is_some_and(|status| status.is_leader()))
        });
        self.arm(leader, "clear");
    }

    /// The leader hands its leadership over.
    fn new_term(&mut self, leader: usize, point: Point, trigger: impl FnOnce(&mut Self)) {
        let highest = |members: &Members| {
            (0..crate::members::COUNT).filter_map(|member| Some(members.status(member)?.term)).max()
        };
        let before = highest(self.members);
        self.arm(leader, point.name());
        trigger(self);
        until("another term began", LIMIT, || highest(self.members).filter(|now| Some(*now) > before));
        if self.members.status(leader).is_some() {
            self.arm(leader, "clear");
        }
    }
}

/// How long a server had waited for a leader before each election that it started, in milliseconds, by its log.
fn election_waits(log: &str) -> Vec<u64> {
    let waited = |line: &str| {
        let (before, _) = line.split_once(" ms timeout expired, starting election")?;
        before.rsplit(' ').next()?.parse().ok()
    };
    log.lines().filter_map(waited).collect()
}
