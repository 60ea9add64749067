use alloc::string::String;
use alloc::vec::Vec;

/// How values of a type become bytes and back.
pub trait Codec<T> {
    /// Appends the bytes of `value`.
    ///
    /// # Errors
    ///
    /// [`CodecError`]: the value has no form in bytes.
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError>;

    /// The value that `bytes`, all of them, are.
    ///
    /// # Errors
    ///
    /// [`CodecError`]: they are none.
    fn decode(bytes: &[u8]) -> Result<T, CodecError>;
}

/// Bytes that are no value, or a value that has no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(pub &'static str);

/// Bytes as they are, text as UTF-8, and nothing as nothing.
#[derive(Clone, Copy, Debug)]
pub struct Raw;

impl Codec<Vec<u8>> for Raw {
    fn encode(value: &Vec<u8>, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(value);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, CodecError> {
        Ok(bytes.to_vec())
    }
}

impl Codec<String> for Raw {
    fn encode(value: &String, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<String, CodecError> {
        let text = core::str::from_utf8(bytes).map_err(|_| CodecError("it is not UTF-8"))?;
        Ok(text.into())
    }
}

impl Codec<()> for Raw {
    fn encode((): &(), _: &mut Vec<u8>) -> Result<(), CodecError> {
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<(), CodecError> {
        match bytes {
            [] => Ok(()),
            _ => Err(CodecError("nothing was expected, and something came")),
        }
    }
}

/// Whatever serde knows, as [postcard](https://postcard.jamesmunns.com/wire-format) has it: small,
/// stable, and without a description of itself, so both sides must mean the same type.
#[cfg(feature = "serde")]
#[derive(Clone, Copy, Debug)]
pub struct Postcard;

#[cfg(feature = "serde")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Codec<T> for Postcard {
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let unfit = |_| CodecError("the value has no form in postcard");
        postcard::serialize_with_flavor(value, Append(out)).map_err(unfit)
    }

    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        match postcard::take_from_bytes(bytes) {
            Ok((value, [])) => Ok(value),
            Ok(_) => Err(CodecError("there are bytes behind the value")),
            Err(_) => Err(CodecError("the bytes are not the value that was expected")),
        }
    }
}

/// Messages of Protocol Buffers, as [prost](https://docs.rs/prost) makes them: fields may be added,
/// so the two sides need not be of one age.
#[cfg(feature = "prost")]
#[derive(Clone, Copy, Debug)]
pub struct Prost;

#[cfg(feature = "prost")]
impl<T: prost::Message + Default> Codec<T> for Prost {
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        value.encode(out).map_err(|_| CodecError("there is no room for the message"))
    }

    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        T::decode(bytes).map_err(|_| CodecError("the bytes are not the message that was expected"))
    }
}

/// Lets postcard write behind what is there already.
#[cfg(feature = "serde")]
struct Append<'a>(&'a mut Vec<u8>);

#[cfg(feature = "serde")]
impl postcard::ser_flavors::Flavor for Append<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
