//! `Bits`: a set of numbers that is small where it is dense and where it is sparse, for the pools.

use std::collections::BTreeMap;

/// Bits of a word of the set.
const WORD: u128 = u64::BITS as u128;

/// A set of numbers. Only words with a number in them are stored: a full /23 is eight of them, and an IPv6 subnet costs
/// what is in it, wherever that lies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bits {
    words: BTreeMap<u128, u64>,
    len: u128,
}

impl Bits {
    /// How many numbers are in the set.
    pub(crate) fn len(&self) -> u128 {
        self.len
    }

    pub(crate) fn contains(&self, number: u128) -> bool {
        self.words.get(&(number / WORD)).is_some_and(|word| word & bit(number) != 0)
    }

    /// Puts `number` in; false if it was in already.
    pub(crate) fn insert(&mut self, number: u128) -> bool {
        let word = self.words.entry(number / WORD).or_default();
        let new = *word & bit(number) == 0;
        *word |= bit(number);
        self.len += u128::from(new);
        new
    }

    /// Takes `number` out; false if it was not in.
    pub(crate) fn remove(&mut self, number: u128) -> bool {
        let Some(word) = self.words.get_mut(&(number / WORD)).filter(|word| **word & bit(number) != 0) else {
            return false;
        };
        *word &= !bit(number);
        if *word == 0 {
            self.words.remove(&(number / WORD));
        }
        self.len -= 1;
        true
    }

    /// The smallest number of `from..=last` that is not in the set. Looks at words, not at numbers.
    pub(crate) fn first_absent(&self, from: u128, last: u128) -> Option<u128> {
        let mut candidate = from;
        for (&index, &word) in self.words.range(from / WORD..) {
            if index > candidate / WORD {
                // The candidate's own word is not stored: nothing is in it.
                break;
            }
            let absent = !word & (u64::MAX << (candidate % WORD));
            if absent != 0 {
                candidate = index * WORD + u128::from(absent.trailing_zeros());
                break;
            }
            // None behind the very last word of all numbers.
            candidate = (index + 1).checked_mul(WORD)?;
        }
        (candidate <= last).then_some(candidate)
    }
}

fn bit(number: u128) -> u64 {
    1 << (number % WORD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_found_across_words() {
        let mut bits = Bits::default();
        (0..300).for_each(|number| assert!(bits.insert(number)));
        assert!(!bits.insert(7));
        assert_eq!(bits.first_absent(0, 1000), Some(300));
        assert_eq!(bits.first_absent(0, 299), None);
        assert_eq!(bits.first_absent(450, 1000), Some(450));
        assert_eq!(bits.first_absent(450, 449), None);
        assert!(bits.remove(130));
        assert!(!bits.remove(130));
        assert_eq!(bits.first_absent(3, 1000), Some(130));
        assert_eq!(bits.first_absent(131, 1000), Some(300));
        assert_eq!(bits.len(), 299);
    }

    #[test]
    fn only_what_is_in_the_set_is_stored() {
        let mut bits = Bits::default();
        (3..503).for_each(|number| assert!(bits.insert(number)));
        assert_eq!(bits.words.len(), 8);
        assert!(bits.insert(1 << 79));
        assert_eq!(bits.words.len(), 9);
        assert!(bits.remove(1 << 79));
        (3..503).for_each(|number| assert!(bits.remove(number)));
        assert!(bits.words.is_empty());
        assert_eq!(bits.len(), 0);
    }

    #[test]
    fn the_end_of_all_numbers_does_not_overflow() {
        let mut bits = Bits::default();
        (0..64).for_each(|back| assert!(bits.insert(u128::MAX - back)));
        assert_eq!(bits.first_absent(u128::MAX, u128::MAX), None);
        assert_eq!(bits.first_absent(u128::MAX - 64, u128::MAX), Some(u128::MAX - 64));
    }
}
