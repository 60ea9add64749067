//! A set of small numbers, such as places in a table.

/// A bit for each number, up to the largest that was ever in it.
#[derive(Default)]
pub(crate) struct Marks {
    words: Vec<u64>,
}

impl Marks {
    pub(crate) fn insert(&mut self, number: u32) {
        let word = (number / u64::BITS) as usize;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (number % u64::BITS);
    }

    /// Takes the lowest out that is not below `from`.
    pub(crate) fn take(&mut self, from: u32) -> Option<u32> {
        let first = (from / u64::BITS) as usize;
        let mut mask = u64::MAX << (from % u64::BITS);
        for (index, word) in self.words.iter_mut().enumerate().skip(first) {
            if *word & mask != 0 {
                let bit = (*word & mask).trailing_zeros();
                *word &= !(1 << bit);
                return Some(index as u32 * u64::BITS + bit);
            }
            mask = u64::MAX;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_comes_out_once_and_in_order() {
        let mut marks = Marks::default();
        [200, 3, 63, 64, 3, 0].into_iter().for_each(|number| marks.insert(number));
        assert_eq!(marks.take(4), Some(63));
        let mut from = 0;
        let rest: Vec<_> = std::iter::from_fn(|| {
            let next = marks.take(from)?;
            from = next + 1;
            Some(next)
        })
        .collect();
        assert_eq!(rest, [0, 3, 64, 200]);
        assert_eq!(marks.take(0), None);
        assert_eq!(marks.take(1000), None);
    }
}
