//! Random numbers that are the same on every machine.
//!
//! A schedule or a plan of faults is named by its seed alone, so that another person on another
//! machine can repeat a run. The generator is xoshiro256++ of Blackman and Vigna, seeded by
//! splitmix64; the transforms use `libm`, whose results do not depend on the platform's own
//! mathematics library.

/// xoshiro256++: 256 bits of state, period 2^256 - 1.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The generator for `stream` of `seed`.
    ///
    /// Different streams of one seed are independent, so that drawing more of one (say, faults)
    /// leaves the others (say, arrivals) as they were.
    pub fn new(seed: u64, stream: &str) -> Self {
        let mut mixer = Splitmix(seed);
        for byte in stream.bytes() {
            mixer = Splitmix(mixer.next() ^ u64::from(byte));
        }
        Random { state: [mixer.next(), mixer.next(), mixer.next(), mixer.next()] }
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A whole number in `0..bound`; zero if `bound` is zero.
    ///
    /// The high half of a 128-bit product: biased by at most `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform over (0, 1]: never zero, so that its logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1u64 << 53) as f64;
        ((self.bits() >> 11) + 1) as f64 * STEP
    }

    /// Exponential with the given mean: the gaps of a Poisson process.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(self.unit())
    }

    /// Log-normal with the given *mean*; `sigma` is the standard deviation of its logarithm.
    ///
    /// Service times of storage look like this: most near the median, a tail on one side.
    pub fn log_normal(&mut self, mean: f64, sigma: f64) -> f64 {
        mean * libm::exp(sigma * self.standard_normal() - 0.5 * sigma * sigma)
    }

    /// Normal with mean 0 and variance 1 (Box and Muller).
    fn standard_normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(self.unit()));
        radius * libm::cos(core::f64::consts::TAU * self.unit())
    }
}

/// splitmix64: spreads a seed of any quality over 64 bits; one step a number.
struct Splitmix(u64);

impl Splitmix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector published with the reference implementation of xoshiro256++.
    #[test]
    fn matches_the_reference_vector() {
        let mut random = Random { state: [1, 2, 3, 4] };
        let drawn: Vec<u64> = (0..6).map(|_| random.bits()).collect();
        assert_eq!(
            drawn,
            [
                41943041,
                58720359,
                3588806011781223,
                3591011842654386,
                9228616714210784205,
                9973669472204895162
            ]
        );
    }

    /// The first numbers of splitmix64 from seed 1234567, as its author publishes them.
    #[test]
    fn splitmix_matches_its_reference_vector() {
        let mut mixer = Splitmix(1234567);
        assert_eq!(mixer.next(), 6457827717110365317);
        assert_eq!(mixer.next(), 3203168211198807973);
    }

    #[test]
    fn streams_of_one_seed_differ() {
        assert_ne!(Random::new(1, "arrivals").bits(), Random::new(1, "faults").bits());
        assert_ne!(Random::new(1, "arrivals").bits(), Random::new(2, "arrivals").bits());
        assert_eq!(Random::new(1, "arrivals").bits(), Random::new(1, "arrivals").bits());
    }

    #[test]
    fn means_are_as_asked() {
        let mut random = Random::new(7, "means");
        let n = 200_000;
        let exponential: f64 = (0..n).map(|_| random.exponential(3.0)).sum::<f64>() / f64::from(n);
        let log_normal: f64 =
            (0..n).map(|_| random.log_normal(5.0, 0.5)).sum::<f64>() / f64::from(n);
        assert!((exponential - 3.0).abs() < 0.03, "{exponential}");
        assert!((log_normal - 5.0).abs() < 0.05, "{log_normal}");
    }

    #[test]
    fn a_bounded_number_reaches_every_value_and_no_other() {
        let mut random = Random::new(7, "below");
        let mut seen = [0u32; 3];
        for _ in 0..3000 {
            seen[random.below(3) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| count > 850), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
