//! ACL priorities ("levels") of the rules of AdminNetworkPolicies: OVN has 32768, and 1001 policy priorities with up to 100
//! rules each way would need more.
//!
//! ```text
//!  priority 0      32031 ┬ Allow, Allow     consecutive rules of one action share a level:
//!                  32030 ┴ Deny             which of them matches makes no difference
//!  priority 1      31999 ┬ Pass             each priority has 32 levels of its own
//!  priority 1      31998 ┴ Deny             another of the same priority: younger, so below it
//!    …
//!  priority 1000   31    ─ Deny
//! ```
//!
//! So adding or removing a policy moves only policies of its own priority. Where 32 levels are not enough, the policies below
//! move as far as they must, and at the lower end those above. Positions follow from the existing policies, not from the
//! order in which they were created.

use objects::{Action, AdminPolicySpec, LAST_PRIORITY, Rule};

/// The highest ACL priority.
const HIGHEST: i32 = 32767;
/// Levels reserved for each policy priority.
const SLOT: i32 = 32;
/// The highest level of the baseline policy, which is alone in its tier.
pub(crate) const BASELINE: i32 = HIGHEST;

/// The levels that a policy needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LevelCount {
    /// `spec.priority`; the smallest is evaluated first.
    pub(crate) priority: u16,
    /// ACL priorities that its rules take, one below the other.
    pub(crate) levels: i32,
    /// Its highest level, if it cannot be moved.
    pub(crate) fixed: Option<i32>,
}

/// The level of each rule, counted down from the policy's highest.
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

/// The number of levels that a policy needs.
pub(crate) fn count(spec: &AdminPolicySpec) -> i32 {
    let of = |rules: &[Rule]| levels_of(rules).last().map_or(0, |last| last + 1);
    of(&spec.ingress).max(of(&spec.egress))
}

/// The highest level of each policy, in order of evaluation; none where there is no room.
pub(crate) fn assign(wanted: &[LevelCount]) -> Vec<Option<i32>> {
    // The last policies get none if there are too many levels.
    let mut total = 0;
    let fits = wanted.iter().map(|wanted| {
        total += wanted.levels;
        wanted.fixed.is_some() || total <= HIGHEST + 1
    });
    let fits: Vec<bool> = fits.collect();
    let mut tops = vec![None; wanted.len()];
    // Downwards: at its own levels, or below the policy before it.
    let mut ceiling = HIGHEST;
    for (index, wanted) in wanted.iter().enumerate().filter(|(index, _)| fits[*index]) {
        let own = SLOT * (i32::from(LAST_PRIORITY) + 1 - i32::from(wanted.priority)) - 1;
        let top = wanted.fixed.unwrap_or(own.min(ceiling));
        tops[index] = Some(top);
        ceiling = top - wanted.levels;
    }
    // Upwards: none below level 0.
    let mut floor = 0;
    for (index, wanted) in wanted.iter().enumerate().rev() {
        let Some(top) = &mut tops[index] else { continue };
        if wanted.fixed.is_none() {
            *top = (*top).max(floor + wanted.levels - 1);
        }
        floor = floor.max(*top + 1);
    }
    // A fixed policy may be in the way.
    let mut ceiling = HIGHEST;
    for (index, wanted) in wanted.iter().enumerate() {
        let top = &mut tops[index];
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

    fn of(priority: u16, levels: i32) -> LevelCount {
        LevelCount { priority, levels, fixed: None }
    }

    #[test]
    fn a_policy_has_the_levels_of_its_priority_regardless_of_others() {
        assert_eq!(assign(&[of(0, 2), of(1000, 32)]), [Some(32031), Some(31)]);
        assert_eq!(assign(&[of(0, 2), of(7, 5), of(1000, 32)]), [Some(32031), Some(31807), Some(31)]);
        // Of equal ones, the first is above.
        assert_eq!(assign(&[of(7, 5), of(7, 5), of(8, 1)]), [Some(31807), Some(31802), Some(31775)]);
    }

    #[test]
    fn a_policy_that_needs_more_levels_moves_only_its_neighbours() {
        assert_eq!(assign(&[of(0, 40), of(1, 30), of(3, 1)]), [Some(32031), Some(31991), Some(31935)]);
        assert_eq!(assign(&[of(998, 1), of(999, 20), of(1000, 100)]), [Some(120), Some(119), Some(99)]);
    }

    #[test]
    fn fixed_policies_stay_and_others_move_around_them() {
        let fixed = LevelCount { priority: 7, levels: 5, fixed: Some(31900) };
        assert_eq!(assign(&[of(6, 1), fixed, of(7, 1)]), [Some(31901), Some(31900), Some(31807)]);
        let low = LevelCount { priority: 999, levels: 5, fixed: Some(6) };
        assert_eq!(assign(&[low, of(1000, 2)]), [Some(6), Some(1)]);
        assert_eq!(assign(&[low, of(1000, 3)]), [Some(6), None]);
    }

    #[test]
    fn policies_that_fit_keep_their_order_and_the_last_ones_get_none() {
        let many: Vec<LevelCount> = (0..1000).map(|priority| of(priority, 1 + i32::from(priority) % 60)).collect();
        let mut ceiling = HIGHEST + 1;
        let tops = assign(&many);
        for (wanted, top) in many.iter().zip(&tops) {
            let top = top.unwrap();
            assert!(top < ceiling && top - wanted.levels >= -1, "{wanted:?} at {top}");
            ceiling = top - wanted.levels + 1;
        }
        let too_many: Vec<LevelCount> = (0..400).map(|priority| of(priority, 100)).collect();
        let room = super::assign(&too_many).iter().filter(|index| index.is_some()).count();
        assert_eq!(room, 327);
    }
}
