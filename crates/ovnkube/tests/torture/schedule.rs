//! The order of faults: a function of the seed. Pure.

use truth::random::Rng;

use crate::fault::{Direction, Fault, Point, Target};

/// Every kind of fault once, in an order and with targets that the seed decides; then all again, in another order.
#[derive(Debug)]
pub(crate) struct Schedule {
    rng: Rng,
    points: Vec<Point>,
    with_slow: bool,
    /// Drawn from the end.
    deck: Vec<Fault>,
}

impl Schedule {
    /// All kinds of faults. `points` are those that the server has.
    pub(crate) fn all(seed: u64, points: Vec<Point>) -> Self {
        Self { rng: Rng::new(seed), points, with_slow: true, deck: Vec::new() }
    }

    /// For a short run: without the slow kinds, and with a few of the points.
    pub(crate) fn short(seed: u64, mut points: Vec<Point>) -> Self {
        const FEW: usize = 4;
        let mut rng = Rng::new(seed);
        points.retain(|point| *point != Point::TransferAfterStartingToAdd);
        shuffle(&mut points, &mut rng);
        points.truncate(FEW);
        Self { rng, points, with_slow: false, deck: Vec::new() }
    }

    /// Number of faults until every kind was injected.
    pub(crate) fn kinds(&self) -> usize {
        self.clone_deck().len()
    }

    pub(crate) fn next(&mut self) -> Fault {
        if self.deck.is_empty() {
            self.deck = deck(&mut self.rng, &self.points, self.with_slow);
        }
        self.deck.pop().unwrap_or(Fault::KillServer(Target::Leader))
    }

    fn clone_deck(&self) -> Vec<Fault> {
        deck(&mut self.rng.clone(), &self.points, self.with_slow)
    }
}

fn deck(rng: &mut Rng, points: &[Point], with_slow: bool) -> Vec<Fault> {
    let direction = if rng.percent(50) { Direction::Outgoing } else { Direction::Incoming };
    let mut target = || match rng.below(4) {
        0 => Target::Follower(0),
        1 => Target::Follower(1),
        _ => Target::Leader,
    };
    let mut deck = vec![
        Fault::KillServer(target()),
        Fault::KillMember(target()),
        Fault::StopServer(target()),
        Fault::CutOff(target()),
        Fault::CutOffOneWay(target(), direction),
        Fault::Restart(target()),
        Fault::Compact(target()),
        Fault::LoseVolume(target()),
        Fault::Readdress(target()),
        Fault::Rename,
    ];
    if with_slow {
        deck.push(Fault::HangServer(target()));
    }
    deck.extend(points.iter().copied().map(Fault::FailurePoint));
    shuffle(&mut deck, rng);
    deck
}

fn shuffle<T>(things: &mut [T], rng: &mut Rng) {
    for last in (1..things.len()).rev() {
        things.swap(last, rng.below(last + 1));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn drawn(seed: u64, count: usize) -> Vec<Fault> {
        let mut schedule = Schedule::all(seed, Point::ALL.to_vec());
        (0..count).map(|_| schedule.next()).collect()
    }

    #[test]
    fn a_seed_replays_the_order_of_faults_and_another_one_does_not() {
        assert_eq!(drawn(7, 60), drawn(7, 60));
        assert_ne!(drawn(7, 60), drawn(8, 60));
    }

    #[test]
    fn every_kind_is_injected_before_any_is_repeated() {
        let kinds = Schedule::all(1, Point::ALL.to_vec()).kinds();
        assert_eq!(kinds, 25);
        for seed in 0..50 {
            let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
            for fault in drawn(seed, 2 * kinds) {
                *counts.entry(fault.kind()).or_default() += 1;
            }
            assert_eq!(counts.len(), kinds);
            assert!(counts.values().all(|count| *count == 2), "{counts:?}");
        }
    }

    #[test]
    fn all_targets_and_directions_occur() {
        let many: Vec<String> = (0..20).flat_map(|seed| drawn(seed, 25)).map(|fault| fault.to_string()).collect();
        for expected in ["server killed: leader", "server killed: follower", "leader, outgoing", "follower, incoming"] {
            assert!(many.iter().any(|text| text.contains(expected)), "no {expected}");
        }
    }

    #[test]
    fn a_short_run_has_every_fast_kind_and_some_points() {
        let mut schedule = Schedule::short(3, Point::ALL.to_vec());
        let kinds = schedule.kinds();
        let faults: Vec<Fault> = (0..kinds).map(|_| schedule.next()).collect();
        let points = faults.iter().filter(|fault| matches!(fault, Fault::FailurePoint(_))).count();
        assert_eq!((kinds, points), (14, 4));
        assert!(faults.iter().any(|fault| matches!(fault, Fault::LoseVolume(_))));
        assert!(!faults.iter().any(|fault| matches!(fault, Fault::HangServer(_))));
    }
}
