//! Tests `.npy` files: those that NumPy writes, those that it can read, and malicious ones.

use sardonyx_tensor::{Buffer, DataType, StringArray, Tensor, TensorError, TensorErrorKind, npy};

fn file(version: u8, header: &str, data: &[u8]) -> Buffer {
    let mut out = b"\x93NUMPY".to_vec();
    out.extend([version, 0]);
    match version {
        1 => out.extend((header.len() as u16).to_le_bytes()),
        _ => out.extend((header.len() as u32).to_le_bytes()),
    }
    out.extend(header.as_bytes());
    out.extend(data);
    Buffer::from_vec(out)
}

fn simple(descr: &str, order: &str, shape: &str, data: &[u8]) -> Result<Tensor, TensorError> {
    npy::read(&file(
        1,
        &format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}   \n"),
        data,
    ))
}

#[test]
fn round_trips() {
    let types = DataType::ALL.into_iter().filter(|t| *t != DataType::String);
    for data_type in types {
        for dims in [&[][..], &[3], &[2, 3], &[0, 5], &[2, 1, 2]] {
            let mut tensor = Tensor::zeros(data_type, dims).unwrap();
            if data_type.is_packed() {
                let codes: Vec<u8> = (0..tensor.len()).map(|i| i as u8 * 3).collect();
                tensor = Tensor::from_codes(data_type, dims, &codes).unwrap();
            } else {
                let bytes = tensor.bytes_mut().unwrap().iter_mut().enumerate();
                bytes.for_each(|(i, b)| *b = i as u8 % 2);
            }
            let bytes = Buffer::from_vec(npy::write(&tensor).unwrap());
            assert_eq!(npy::read_as(&bytes, data_type).unwrap(), tensor);
            match npy::read(&bytes) {
                Ok(read) => assert!(npy::names_type(data_type) && read == tensor, "{data_type}"),
                Err(error) => {
                    assert_eq!(error.kind(), TensorErrorKind::Unsupported);
                    assert!(!npy::names_type(data_type), "{data_type}");
                }
            }
        }
    }
    let named = DataType::ALL.into_iter().filter(|t| npy::names_type(*t));
    assert_eq!(named.count(), 15);
    let strings = Tensor::from_strings([2, 1], StringArray::from_iter(["", "äb€"])).unwrap();
    assert_eq!(npy::read(&npy::write(&strings).unwrap().into()).unwrap(), strings);
    for bad in [&b"a\0"[..], b"\xff"] {
        assert!(npy::write(&Tensor::from(StringArray::from_iter([bad]))).is_err());
    }
}

#[test]
fn bytes_are_those_of_numpy() {
    let want = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (), }";
    let bytes = npy::write(&Tensor::scalar(3.0f64)).unwrap();
    assert_eq!(bytes[..want.len()], *want);
    assert_eq!((bytes.len(), bytes[127], &bytes[128..]), (136, b'\n', &3f64.to_le_bytes()[..]));
}

/// Compares with the bytes that `numpy.save` writes for arrays of ml_dtypes 0.6.
#[test]
fn bytes_are_those_of_numpy_and_ml_dtypes() {
    let rows = [
        (
            DataType::Bfloat16,
            "<V2",
            [0x3F80u16, 0xC000].iter().flat_map(|x| x.to_le_bytes()).collect(),
        ),
        (DataType::Float8e4m3fn, "<V1", vec![0x38, 0xC0]),
        (DataType::Int4, "<V1", vec![0x01, 0x0E]),
        (DataType::Uint4, "<V1", vec![0x01, 0x0E]),
        (DataType::Float4e2m1, "<V1", vec![0x02, 0x0C]),
    ];
    for (data_type, descr, data) in rows {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,), }}");
        let padded = format!("{header:<117}\n");
        let theirs = file(1, &padded, &data);
        let tensor = npy::read_as(&theirs, data_type).unwrap();
        assert_eq!(npy::write(&tensor).unwrap(), theirs.as_slice(), "{data_type}");
    }
}

#[test]
fn orders_of_bytes_and_elements() {
    let data: Vec<u8> = [0u16, 3, 1, 4, 2, 5].iter().flat_map(|x| x.to_be_bytes()).collect();
    let tensor = simple(">i2", "True", "(2, 3)", &data).unwrap();
    assert_eq!(
        (tensor.dims(), tensor.to_vec::<i16>().unwrap()),
        (&[2, 3][..], vec![0, 1, 2, 3, 4, 5])
    );
    let one = simple("<u4", "False", "(1,)", &7u32.to_le_bytes()).unwrap();
    assert_eq!(one.item::<u32>().unwrap(), 7);
    let complex = simple(">c8", "False", "()", &[0x3F, 0x80, 0, 0, 0x40, 0, 0, 0]).unwrap();
    assert_eq!(complex.to_string(), "complex64[] {(1+2j)}");
    let text: Vec<u8> = "ab\0\0".chars().flat_map(|c| (c as u32).to_be_bytes()).collect();
    assert_eq!(
        simple(">U2", "False", "(2,)", &text).unwrap().strings().unwrap(),
        &StringArray::from_iter(["ab", ""])
    );
    assert_eq!(simple("|S3", "False", "(1,)", b"a\0b").unwrap().strings().unwrap().get(0), b"a\0b");
    for version in [2, 3] {
        let header = "{\"shape\": (2L,), 'fortran_order' : False, 'descr':'|u1'}\n";
        assert_eq!(
            npy::read(&file(version, header, &[1, 2, 3])).unwrap().to_vec::<u8>().unwrap(),
            [1, 2]
        );
    }
}

#[test]
fn types_numpy_has_no_name_for() {
    for descr in ["<V2", "|V1", "<f1"] {
        let error = simple(descr, "False", "(1,)", &[0x80, 0x3F]).unwrap_err();
        assert_eq!(error.kind(), TensorErrorKind::Unsupported);
        assert!(error.message().contains("give the type"), "{error}");
    }
    let source = file(
        1,
        "{'descr': '<V2', 'fortran_order': False, 'shape': (1,)}",
        &0x3F80u16.to_le_bytes(),
    );
    let tensor = npy::read_as(&source, DataType::Bfloat16).unwrap();
    assert_eq!(tensor.to_string(), "bfloat16[1] {1.0}");
    assert_eq!(npy::read_as(&source, DataType::Float).unwrap_err().kind(), TensorErrorKind::Type);
    for strings in ["<U1", "|S2"] {
        let header = format!("{{'descr': '{strings}', 'fortran_order': False, 'shape': (1,)}}");
        let refused = npy::read_as(&file(1, &header, b"a\0\0\0"), DataType::Bfloat16);
        assert_eq!(refused.unwrap_err().kind(), TensorErrorKind::Type);
    }
    let source = file(1, "{'descr': '<V1', 'fortran_order': False, 'shape': (3,)}", &[1, 2, 15]);
    assert_eq!(npy::read_as(&source, DataType::Int4).unwrap().bytes(), [0x21, 0x0F]);
}

#[test]
fn hostile_files_are_errors() {
    let big = u64::MAX.to_string();
    for (descr, shape) in [
        ("<f4", "(3,)"),
        ("<f4", "(1099511627776, 1099511627776)"),
        ("<f4", "(0, 1099511627776, 1099511627776)"),
        ("<f4", &format!("({big},)")),
        ("<f4", "(99999999999999999999999,)"),
        ("<f4", "(-1,)"),
        ("<f4", "(2"),
        ("<f4", "[2]"),
        ("<U4611686018427387904", "(1,)"),
        ("<U1", "(1,)"),
        ("|S0", "(100000000000,)"),
        ("|O", "(1,)"),
        ("<M8[ns]", "(1,)"),
        ("<f3", "(1,)"),
        ("", "(1,)"),
        ("é4", "(1,)"),
        ("<é4", "(1,)"),
        ("<f", "(1,)"),
        ("<f4", &format!("({})", "1,".repeat(100))),
    ] {
        assert!(simple(descr, "False", shape, &[0xFF; 8]).is_err(), "{descr} {shape}");
        assert!(simple(descr, "True", shape, &[0xFF; 8]).is_err(), "{descr} {shape}");
    }
    for header in
        ["", "{", "{}", "{'descr'", "{'descr': [('a', '<f4')], ", "{'x': 1}", "{'descr': '<f4'} x"]
    {
        assert!(npy::read(&file(1, header, &[0; 64])).is_err(), "{header}");
    }
    let good =
        file(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }\n", &[1, 2, 3, 4]);
    npy::read(&good).unwrap();
    for cut in 0..good.len() {
        assert!(npy::read(&good.slice(0..cut).unwrap()).is_err(), "cut at {cut}");
        // Changing any one byte gives an error or another array, never a panic.
        for change in [0, 0xFF, b'(', b'9', b'\''] {
            let mut bytes = good.as_slice().to_vec();
            bytes[cut] = change;
            let _ = npy::read(&Buffer::from_vec(bytes));
        }
    }
    let mut long = b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec();
    long.resize(100, b' ');
    assert!(npy::read(&Buffer::from_vec(long)).is_err());
}
