//! Where a replica stands, what it serves, and how much of it.

use std::ops::RangeInclusive;

use bowline_protocol::Method;

use super::config::{ConfigError, check};

/// How a replica fits into the set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Replicas of one domain (a host, a rack) are held to fail together.
    pub domain: u32,
    /// How far away it is: of two that could serve a call the nearer is asked, whatever their load,
    /// and a farther one is only if no nearer one can be. 0 to 3. Calls with a shard key go where
    /// the key says.
    pub distance: u8,
    /// Its share of the work, in proportion to the others': the power of two choices and shard keys
    /// go by it. 1 to 32.
    pub weight: u8,
    /// The methods that it serves; None: all.
    pub methods: Option<Vec<Method>>,
    /// The shard keys that it serves; empty: all. Calls without a key may go anywhere.
    pub keys: Vec<RangeInclusive<u64>>,
    /// The store in which it keeps the results of keyed methods, by a number that it has in common
    /// with those who share it: a call with a key is sent beside itself only to replicas of one
    /// store. None: it has a store of its own.
    pub results: Option<u32>,
}

impl Default for Placement {
    /// In domain 0, here, of weight 1, for all methods and keys, with results of its own.
    fn default() -> Self {
        Placement {
            domain: 0,
            distance: 0,
            weight: 1,
            methods: None,
            keys: Vec::new(),
            results: None,
        }
    }
}

impl Placement {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        check("replica.distance", self.distance, self.distance <= 3, "0 to 3")?;
        check("replica.weight", self.weight, (1..=32).contains(&self.weight), "1 to 32")?;
        let served = self.methods.as_ref().is_none_or(|methods| !methods.is_empty());
        check("replica.methods", "empty", served, "left out, or one at least")?;
        let backwards = self.keys.iter().find(|keys| keys.is_empty());
        let found = backwards.map_or(String::new(), |keys| format!("{keys:?}"));
        check("replica.keys", found, backwards.is_none(), "from the lower to the higher")
    }

    /// It serves calls of that method and key.
    pub(crate) fn serves(&self, method: Method, key: Option<u64>) -> bool {
        let method = self.methods.as_ref().is_none_or(|methods| methods.contains(&method));
        let held = |key| self.keys.is_empty() || self.keys.iter().any(|keys| keys.contains(&key));
        method && key.is_none_or(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_says_which_methods_and_keys_are_served() {
        let all = Placement::default();
        assert!(all.serves(Method(1), Some(7)) && all.serves(Method(1), None));
        let some = Placement {
            methods: Some(vec![Method(1)]),
            keys: vec![0..=9, 20..=20],
            ..Placement::default()
        };
        assert!(some.serves(Method(1), None) && some.serves(Method(1), Some(20)));
        assert!(!some.serves(Method(2), None) && !some.serves(Method(1), Some(10)));
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let field = |placement: Placement| placement.validate().unwrap_err().to_string();
        let weight = field(Placement { weight: 0, ..Placement::default() });
        assert_eq!(weight, "replica.weight is 0, but must be 1 to 32");
        let keys =
            field(Placement { keys: vec![RangeInclusive::new(9, 3)], ..Placement::default() });
        assert_eq!(keys, "replica.keys is 9..=3, but must be from the lower to the higher");
    }
}
