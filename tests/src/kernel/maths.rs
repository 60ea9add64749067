//! Logarithm and exponential that are the same to the last bit on every machine.
//!
//! The platform's `ln` and `exp` differ between C libraries and architectures; sums, products and
//! quotients of IEEE 754 do not. A seed has to make the same world everywhere, so these two are our
//! own. They are good to a few units in the last place, far more than a drawn service time needs.

/// ln 2 in two parts: the first has so few digits that a small whole multiple of it is exact.
const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// The natural logarithm of a normal, positive number.
pub fn ln(x: f64) -> f64 {
    debug_assert!(x.is_normal() && x > 0.0, "ln({x})");
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let mut mantissa = f64::from_bits(bits & 0x000f_ffff_ffff_ffff | 1023 << 52);
    if mantissa > core::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh t for t = (m - 1) / (m + 1), and |t| < 0.172 here: the first term left out
    // is below 1e-18.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let mut sum = 0.0;
    for odd in (0..11).rev() {
        sum = sum * square + 1.0 / f64::from(2 * odd + 1);
    }
    let exponent = f64::from(exponent);
    exponent * LN_2_HIGH + (exponent * LN_2_LOW + 2.0 * t * sum)
}

/// e to the power of `x`, for |x| up to 700.
pub fn exp(x: f64) -> f64 {
    debug_assert!(x.abs() <= 700.0, "exp({x})");
    let twos = (x * core::f64::consts::LOG2_E + 0.5).floor();
    // |rest| < 0.35: the first term left out of the series is below 1e-18.
    let rest = x - twos * LN_2_HIGH - twos * LN_2_LOW;
    let mut sum = 1.0;
    for k in (1..15).rev() {
        sum = sum * rest / f64::from(k) + 1.0;
    }
    sum * f64::from_bits(((twos as i64 + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_agree_with_the_platform_to_a_billionth_of_a_billionth() {
        for i in 1..2000 {
            let x = f64::from(i) * 0.0137;
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(1.0), "ln({x})");
            for x in [x, -x] {
                assert!((exp(x) / x.exp() - 1.0).abs() < 1e-15, "exp({x})");
            }
        }
    }

    #[test]
    fn the_bits_are_these_on_every_machine() {
        assert_eq!(ln(0.1).to_bits(), 0xc002_6bb1_bbb5_5515);
        assert_eq!(exp(1.0).to_bits(), 0x4005_bf0a_8b14_576a);
    }
}
