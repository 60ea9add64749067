//! What requests and answers carry: bytes that tell whether they are whole, and whose they are.

use crate::kernel::rng::mix;

/// The shortest request, in bytes: it has to say which it is.
const SHORTEST: usize = 8;

/// The payload of a request: what it asks for, and as many bytes made of that as it is long.
pub(super) fn request(asks: u64, length: usize) -> Vec<u8> {
    filled(&[asks], length.max(SHORTEST))
}

/// What a request asks for; None if its payload is not as it was made.
pub(super) fn asked(bytes: &[u8]) -> Option<u64> {
    let asks = u64::from_le_bytes(*bytes.first_chunk()?);
    (request(asks, bytes.len()) == bytes).then_some(asks)
}

/// What is answered to a request: for what it asks, as the effect of that number.
pub(super) fn answer(asks: u64, effect: u64, length: usize) -> Vec<u8> {
    filled(&[mix(asks), effect], length.max(2 * SHORTEST))
}

/// The number of the effect that an answer tells of, if that is what was asked for.
pub(super) fn effect_of(asks: u64, answer: &[u8]) -> Option<u64> {
    let effect = u64::from_le_bytes(*answer.get(SHORTEST..)?.first_chunk()?);
    (self::answer(asks, effect, answer.len()) == answer).then_some(effect)
}

fn filled(words: &[u64], length: usize) -> Vec<u8> {
    let seed = words.iter().fold(0, |seed, &word| mix(seed ^ word));
    let more = (0..).map(|n| mix(seed ^ n));
    let words = words.iter().copied().chain(more);
    let bytes = words.take(length.div_ceil(8)).flat_map(u64::to_le_bytes);
    bytes.take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_is_not_whole_or_not_in_order_is_told_from_one_that_is() {
        for length in [0, 8, 9, 1000] {
            let bytes = request(7, length);
            assert_eq!((asked(&bytes), bytes.len()), (Some(7), length.max(8)));
        }
        let bytes = request(7, 1000);
        assert_eq!(asked(&bytes[1..]), None);
        assert_eq!(asked(&[&bytes[..100], &bytes[200..300], &bytes[100..200]].concat()), None);
        let told = answer(7, 3, 50);
        assert_eq!((effect_of(7, &told), effect_of(8, &told)), (Some(3), None));
    }
}
