//! Which priorities of the database the rules of AdminNetworkPolicies have: there are 32768, and 1001 priorities of up to
//! 100 rules each way would need more.
//!
//! ```text
//!  priority 0      32031 ┬ Allow, Allow     rules of one action that follow each other share a level:
//!                  32030 ┴ Deny             which of them matches makes no difference
//!  priority 1      31999 ┬ Pass             the policy has its own 32 levels, whoever else is there
//!  priority 1      31998 ┴ Deny             another of the same priority: younger, so below it
//!    …
//!  priority 1000   31    ─ Deny
//! ```
//!
//! So a policy that comes or goes moves nobody but those of its own priority. Where 32 levels are not enough, those below
//! make room as far as they must, and at the lower end those above. Where a policy stands follows from the policies that
//! are there, not from how they came.

use crate::objects::{Action, AdminPolicySpec, LAST_PRIORITY, Rule};

/// The highest priority that the database has.
const HIGHEST: i32 = 32767;
/// So many levels each priority has to itself.
const SLOT: i32 = 32;
/// The highest level of the baseline, which is alone in its tier.
pub(crate) const BASELINE: i32 = HIGHEST;

/// What a policy needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Its priority.
    pub(crate) priority: u16,
    /// How many levels.
    pub(crate) levels: i32,
    /// Its highest level, if that cannot be moved.
    pub(crate) fixed: Option<i32>,
}

/// The level of each rule below the policy's highest.
pub(crate) fn levels_of(rules: &[Rule]) -> Vec<i32> {
    let mut before: Option<Action> = None;
    let mut level = -1;
    let levels = rules.iter().map(|rule| {
        if before != Some(rule.action) {
            level += 1;
            before = Some(rule.action);
        }
        level
    });
    levels.collect()
}

/// How many levels a policy needs.
pub(crate) fn count(spec: &AdminPolicySpec) -> i32 {
    let of = |rules: &[Rule]| levels_of(rules).last().map_or(0, |last| last + 1);
    of(&spec.ingress).max(of(&spec.egress))
}

/// The highest level of each policy, given in the order in which they are asked; none where there is no room.
pub(crate) fn places(wanted: &[Wanted]) -> Vec<Option<i32>> {
    // Those that come last do without.
    let mut total = 0;
    let fits = wanted.iter().map(|wanted| {
        total += wanted.levels;
        wanted.fixed.is_some() || total <= HIGHEST + 1
    });
    let fits: Vec<bool> = fits.collect();
    let mut tops = vec![None; wanted.len()];
    // From above: where it belongs, or below the one before it.
    let mut ceiling = HIGHEST;
    for (place, wanted) in wanted.iter().enumerate().filter(|(place, _)| fits[*place]) {
        let own = SLOT * (i32::from(LAST_PRIORITY) + 1 - i32::from(wanted.priority)) - 1;
        let top = wanted.fixed.unwrap_or(own.min(ceiling));
        tops[place] = Some(top);
        ceiling = top - wanted.levels;
    }
    // From below: nobody falls out.
    let mut floor = 0;
    for (place, wanted) in wanted.iter().enumerate().rev() {
        let Some(top) = &mut tops[place] else { continue };
        if wanted.fixed.is_none() {
            *top = (*top).max(floor + wanted.levels - 1);
        }
        floor = floor.max(*top + 1);
    }
    // One that cannot be moved may be in the way.
    let mut ceiling = HIGHEST;
    for (place, wanted) in wanted.iter().enumerate() {
        let top = &mut tops[place];
        if wanted.fixed.is_none() && top.is_some_and(|top| top > ceiling) {
            *top = None;
        }
        ceiling = top.map_or(ceiling, |top| top - wanted.levels);
    }
    tops
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(priority: u16, levels: i32) -> Wanted {
        Wanted { priority, levels, fixed: None }
    }

    #[test]
    fn a_priority_has_its_place_whoever_else_is_there() {
        assert_eq!(places(&[of(0, 2), of(1000, 32)]), [Some(32031), Some(31)]);
        assert_eq!(places(&[of(0, 2), of(7, 5), of(1000, 32)]), [Some(32031), Some(31807), Some(31)]);
        // Of equal ones, the first is above.
        assert_eq!(places(&[of(7, 5), of(7, 5), of(8, 1)]), [Some(31807), Some(31802), Some(31775)]);
    }

    #[test]
    fn who_needs_more_moves_those_beside_it_only() {
        assert_eq!(places(&[of(0, 40), of(1, 30), of(3, 1)]), [Some(32031), Some(31991), Some(31935)]);
        assert_eq!(places(&[of(998, 1), of(999, 20), of(1000, 100)]), [Some(120), Some(119), Some(99)]);
    }

    #[test]
    fn what_is_fixed_stays_and_others_go_around() {
        let fixed = Wanted { priority: 7, levels: 5, fixed: Some(31900) };
        assert_eq!(places(&[of(6, 1), fixed, of(7, 1)]), [Some(31901), Some(31900), Some(31807)]);
        let low = Wanted { priority: 999, levels: 5, fixed: Some(6) };
        assert_eq!(places(&[low, of(1000, 2)]), [Some(6), Some(1)]);
        assert_eq!(places(&[low, of(1000, 3)]), [Some(6), None]);
    }

    #[test]
    fn all_that_fit_are_in_order_and_the_last_ones_do_without() {
        let many: Vec<Wanted> = (0..1000).map(|priority| of(priority, 1 + i32::from(priority) % 60)).collect();
        let mut ceiling = HIGHEST + 1;
        let places = places(&many);
        for (wanted, top) in many.iter().zip(&places) {
            let top = top.unwrap();
            assert!(top < ceiling && top - wanted.levels >= -1, "{wanted:?} at {top}");
            ceiling = top - wanted.levels + 1;
        }
        let too_many: Vec<Wanted> = (0..400).map(|priority| of(priority, 100)).collect();
        let room = super::places(&too_many).iter().filter(|place| place.is_some()).count();
        assert_eq!(room, 327);
    }
}
