//! Random numbers that a seed names, the same on every machine.

use crate::kernel::maths::ln;

/// One step of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
/// 2014): turns any number into one that looks like none of its neighbours.
pub const fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// xoshiro256++ (Blackman, Vigna: Scrambled linear pseudorandom number generators, 2018).
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// The stream that `seed` names.
    pub const fn new(seed: u64) -> Rng {
        let a = mix(seed);
        let b = mix(a);
        let c = mix(b);
        Rng([a, b, c, mix(c)])
    }

    /// The stream that `seed` and `label` name together. Whatever a world draws for one purpose has
    /// a label of its own, so that one more draw here does not change everything over there.
    pub const fn labelled(seed: u64, label: u64) -> Rng {
        Rng::new(mix(seed) ^ label.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    /// 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let t = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= t;
        *d = d.rotate_left(45);
        result
    }

    /// An even draw from `0..bound`; 0 if `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// An even draw from `low..=high`.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// True in `permille` of a thousand draws.
    pub const fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// One of `choices`.
    pub const fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// An even draw from (0, 1]: never zero, so that its logarithm is finite.
    pub fn fraction(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// An exponential draw with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -ln(self.fraction())
    }

    /// A draw from the normal distribution with mean 0 and deviation 1 (Marsaglia's polar method,
    /// which needs no sine).
    pub fn normal(&mut self) -> f64 {
        loop {
            let (u, v) = (2.0 * self.fraction() - 1.0, 2.0 * self.fraction() - 1.0);
            let s = u * u + v * v;
            if s < 1.0 && s > f64::MIN_POSITIVE {
                return u * (-2.0 * ln(s) / s).sqrt();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_one_stream_for_ever() {
        let mut rng = Rng::new(1);
        let drawn = [rng.next_u64(), rng.next_u64(), rng.below(1000), rng.between(5, 9)];
        assert_eq!(drawn, [8_519_585_912_109_933_218, 10_835_778_687_385_656_862, 794, 5]);
    }

    #[test]
    fn draws_have_the_moments_of_their_distributions() {
        let mut rng = Rng::new(7);
        let n = 200_000;
        let mean = |draw: &mut dyn FnMut() -> f64| (0..n).map(|_| draw()).sum::<f64>() / n as f64;
        assert!((mean(&mut || rng.fraction()) - 0.5).abs() < 0.005);
        assert!((mean(&mut || rng.exponential()) - 1.0).abs() < 0.01);
        assert!(mean(&mut || rng.normal()).abs() < 0.01);
        assert!((mean(&mut || rng.normal().powi(2)) - 1.0).abs() < 0.02);
        assert!((mean(&mut || f64::from(u8::from(rng.chance(250)))) - 0.25).abs() < 0.005);
    }
}
