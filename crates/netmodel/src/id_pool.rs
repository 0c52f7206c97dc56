//! `IdPool`: small numbers, each given out once.

use std::ops::RangeInclusive;

use thiserror::Error;

use crate::bits::Bits;

/// The numbers `first..=last`, each of them free or taken. The lowest free one is given out first, so numbers stay
/// small.
#[derive(Debug, Clone)]
pub struct IdPool {
    first: u32,
    last: u32,
    used: Bits,
    /// No number below it is free, so `allocate` looks from here.
    lowest: u128,
}

/// Why a number cannot be claimed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IdError {
    /// The number is not of this pool.
    #[error("ID {id} is outside the range {first} to {last}")]
    OutOfRange {
        /// The number as it was given.
        id: u32,
        /// The smallest number of the pool.
        first: u32,
        /// The largest number of the pool.
        last: u32,
    },
    /// The number has an owner.
    #[error("ID {id} is already taken")]
    Taken {
        /// The number as it was given.
        id: u32,
    },
}

impl IdPool {
    /// The pool of these numbers, all of them free. An empty range has none.
    pub fn new(range: RangeInclusive<u32>) -> Self {
        let (first, last) = range.into_inner();
        Self { first, last, used: Bits::default(), lowest: u128::from(first) }
    }

    /// How many numbers there are, free or taken.
    pub fn capacity(&self) -> u64 {
        u64::from(self.last).checked_sub(u64::from(self.first)).map_or(0, |behind_first| behind_first + 1)
    }

    /// How many numbers are taken.
    pub fn taken(&self) -> u64 {
        // Never more than the capacity, which fits.
        u64::try_from(self.used.len()).unwrap_or(u64::MAX)
    }

    /// Whether `id` is taken; false outside the range.
    pub fn is_taken(&self, id: u32) -> bool {
        self.used.contains(u128::from(id))
    }

    /// Takes this very number: what a restart does with the numbers that are in use already.
    pub fn claim(&mut self, id: u32) -> Result<(), IdError> {
        if !(self.first..=self.last).contains(&id) {
            return Err(IdError::OutOfRange { id, first: self.first, last: self.last });
        }
        if self.used.insert(u128::from(id)) { Ok(()) } else { Err(IdError::Taken { id }) }
    }

    /// Takes the lowest free number; `None` when all are taken.
    pub fn allocate(&mut self) -> Option<u32> {
        let number = self.used.first_absent(self.lowest, u128::from(self.last))?;
        let id = u32::try_from(number).ok()?;
        self.used.insert(number);
        self.lowest = number + 1;
        Some(id)
    }

    /// Taken becomes free; false if it was not taken.
    pub fn release(&mut self, id: u32) -> bool {
        let number = u128::from(id);
        let released = self.used.remove(number);
        if released {
            self.lowest = self.lowest.min(number);
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_comes_first() {
        let mut pool = IdPool::new(2..=5);
        assert_eq!(pool.claim(3), Ok(()));
        assert_eq!(
            (pool.allocate(), pool.allocate(), pool.allocate(), pool.allocate()),
            (Some(2), Some(4), Some(5), None)
        );
        assert!(pool.release(3));
        assert!(!pool.release(3));
        assert!(pool.release(5));
        assert_eq!((pool.allocate(), pool.allocate(), pool.allocate()), (Some(3), Some(5), None));
        assert_eq!((pool.taken(), pool.capacity()), (4, 4));
    }

    #[test]
    fn a_claim_that_cannot_be_says_why() {
        let mut pool = IdPool::new(1..=4095);
        assert_eq!(pool.claim(4095), Ok(()));
        assert_eq!(pool.claim(4095).map_err(|error| error.to_string()), Err("ID 4095 is already taken".to_owned()));
        let outside = pool.claim(0).expect_err("outside");
        assert_eq!(outside.to_string(), "ID 0 is outside the range 1 to 4095");
    }

    #[test]
    fn the_ends_of_all_numbers_are_numbers_too() {
        let mut whole = IdPool::new(0..=u32::MAX);
        assert_eq!(whole.capacity(), 1 << 32);
        assert_eq!(whole.claim(u32::MAX), Ok(()));
        assert_eq!(whole.allocate(), Some(0));
        let mut one = IdPool::new(u32::MAX..=u32::MAX);
        assert_eq!((one.capacity(), one.allocate(), one.allocate()), (1, Some(u32::MAX), None));
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "the empty range is what is tested")]
    fn an_empty_range_has_no_numbers() {
        let mut none = IdPool::new(2..=1);
        assert_eq!((none.capacity(), none.allocate(), none.taken()), (0, None, 0));
        assert!(none.claim(1).is_err() && none.claim(2).is_err());
    }
}
