//! BitCast: reinterprets bits as elements of another type.

use sardonyx_tensor::{DataType, Dims};

use super::moves::dense;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::element_type;
use crate::program::{MoveKind, Op};

/// Lowers `BitCast` to the same type to the identity.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let to = target(site)?;
    Ok(if site.elem(0)? == to { Op::moves(MoveKind::SAME, site) } else { Op::opaque(site) })
}

/// Binds `BitCast` to another type.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(BitCast { to: target(site)? }))
}

/// Returns the target type, which must be as wide as the source type.
fn target(site: &Site<'_>) -> Result<DataType, BindError> {
    let (from, to) = (site.elem(0)?, element_type(site, "to")?);
    let Some(to) = to else {
        return Err(BindError::Invalid("attribute 'to' is missing".to_string()));
    };
    match (from.bits(), to.bits()) {
        (Some(before), Some(after)) if before == after => Ok(to),
        (Some(before), Some(after)) => Err(BindError::Invalid(format!(
            "{from} has {before} bits and cannot be reinterpreted as {to}, which has {after} bits"
        ))),
        _ => Err(BindError::Invalid(format!(
            "{from} cannot be reinterpreted as {to}: strings are not supported"
        ))),
    }
}

struct BitCast {
    to: DataType,
}

impl Kernel for BitCast {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let input = call.tensor(0)?.clone();
        if input.data_type().bits() != self.to.bits() {
            fail!(
                "the input is {}, which does not have the width of {}",
                input.data_type(),
                self.to
            );
        }
        let (dims, bits) = (Dims::from(input.dims()), input.len() * self.to.bits().unwrap_or(0));
        let bytes = dense(call, &input)?;
        let mut output = call.output(0, self.to, &dims)?;
        let out = output.bytes_mut();
        out.copy_from_slice(&bytes[..out.len()]);
        // Bits after the last element are undefined in the input, and are written as zero.
        if let (Some(last), used @ 1..) = (out.last_mut(), bits % 8) {
            *last &= (1 << used) - 1;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        format!("bits as {}", self.to)
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::{Bool8, Buffer, Complex64, StringArray, Tensor};

    use super::*;
    use crate::ops::testing::{run, tensor};

    fn cast(x: &Tensor, to: DataType) -> Result<Tensor, String> {
        let given = [("to", Int(i64::from(to.number())))];
        Ok(run("BitCast", &given, &[Some(x)], 1)?.remove(0))
    }

    #[test]
    fn bits_stay() {
        let floats = tensor(&[2, 2], &[1f32, -0.0, f32::NAN, f32::INFINITY]);
        let bits = [0x3f80_0000u32, 1 << 31, f32::NAN.to_bits(), 0x7f80_0000];
        let rows = [
            (floats, tensor(&[2, 2], &bits)),
            (tensor(&[], &[-1i64]), tensor(&[], &[u64::MAX])),
            (tensor(&[0, 3], &[0f64; 0]), tensor(&[0, 3], &[0i64; 0])),
            (tensor(&[3], &[0i8, 1, -1].map(|x| x as u8)), tensor(&[3], &[0i8, 1, -1])),
            (tensor(&[2], &[Bool8(1), Bool8(0)]), tensor(&[2], &[1u8, 0])),
            (
                tensor(&[1], &[Complex64 { re: 0.0, im: 1.0 }]),
                tensor(&[1], &[0x3f80_0000_0000_0000i64]),
            ),
        ];
        for (x, expected) in rows {
            let found = cast(&x, expected.data_type()).unwrap();
            assert!(found.bit_eq(&expected), "{found:?}");
            assert!(cast(&found, x.data_type()).unwrap().bit_eq(&x));
        }
        let codes = Tensor::from_codes(DataType::Int4, [3], &[1, 15, 8]).unwrap();
        let found = cast(&codes, DataType::Uint4).unwrap();
        assert_eq!(found, Tensor::from_codes(DataType::Uint4, [3], &[1, 15, 8]).unwrap());
        assert_eq!(cast(&codes, DataType::Int4).unwrap(), codes);
        // What lies after the last element is not passed on.
        let dirty = Buffer::from_vec(vec![0xb1]);
        let dirty = Tensor::from_buffer(DataType::Uint2, [2], dirty).unwrap();
        assert_eq!(cast(&dirty, DataType::Int2).unwrap().bytes(), [1]);
    }

    #[test]
    fn every_pair_of_widths() {
        for from in DataType::ALL.into_iter().filter(|from| *from != DataType::String) {
            let x = Tensor::zeros(from, [3]).unwrap();
            for to in DataType::ALL {
                let found = cast(&x, to);
                assert_eq!(found.is_ok(), from.bits() == to.bits(), "{from} {to}: {found:?}");
            }
        }
    }

    #[test]
    fn other_widths_are_refused() {
        let x = tensor(&[1], &[1f32]);
        for (to, refusal) in [
            (
                DataType::Int64,
                "float has 32 bits and cannot be reinterpreted as int64, which has 64",
            ),
            (
                DataType::String,
                "float cannot be reinterpreted as string: strings are not supported",
            ),
        ] {
            let found = cast(&x, to).unwrap_err();
            assert!(found.contains(refusal), "{found}");
        }
        let found = run("BitCast", &[("to", Int(99))], &[Some(&x)], 1).unwrap_err();
        assert_eq!(found, "attribute 'to' is 99, which is not an element type");
        let strings = Tensor::from_strings([1], ["a"].iter().collect::<StringArray>()).unwrap();
        assert!(cast(&strings, DataType::Float).unwrap_err().contains("strings are not supported"));
    }
}
