//! Tests of tensors, views and values: construction, sharing, alignment, equality.

use sardonyx_tensor::{
    Buffer, DataType, Map, MapKey, Sequence, SharedBytes, Sparse, StringArray, Tensor,
    TensorErrorKind, TensorView, TensorViewMut, Value, ValueType, ViewData, realigned_copies,
};
use std::sync::Arc;

fn floats(dims: &[usize]) -> Tensor {
    let n = dims.iter().product();
    Tensor::from_vec(dims, (0..n).map(|i| i as f32).collect()).unwrap()
}

#[test]
fn counts_must_match() {
    // TENSOR-01+-, TENSOR-03-, TENSOR-04-, TENSOR-11, TENSOR-26+-
    assert!(Tensor::from_vec([2, 3], vec![0f32; 6]).is_ok());
    assert_eq!(Tensor::from_vec([2, 3], vec![0f32; 5]).unwrap_err().kind(), TensorErrorKind::Size);
    assert!(Tensor::from_vec([0, 5], vec![0f32; 5]).is_err());
    assert!(Tensor::from_vec([0usize; 0], Vec::<f32>::new()).is_err());
    let buffer = |n| Buffer::from_vec(vec![0; n]);
    for (bytes, ok) in [(24, true), (23, false), (25, false), (0, false)] {
        assert_eq!(
            Tensor::from_buffer(DataType::Float, [2, 3], buffer(bytes)).is_ok(),
            ok,
            "{bytes}"
        );
    }
    let error = Tensor::from_buffer(DataType::Int4, [3], buffer(1)).unwrap_err();
    assert_eq!(error.to_string(), "int4[3] has 3 elements and needs 2 bytes, but there are 1"); // TENSOR-17-
    assert_eq!(
        Tensor::from_buffer(DataType::String, [0], buffer(0)).unwrap_err().kind(),
        TensorErrorKind::Type
    ); // TENSOR-23
    // TENSOR-32-
    let huge = [1 << 40, 1 << 40];
    assert_eq!(
        Tensor::from_buffer(DataType::Float, huge, buffer(0)).unwrap_err().kind(),
        TensorErrorKind::Overflow
    );
    for data_type in [DataType::Float, DataType::String, DataType::Int4] {
        assert_eq!(Tensor::zeros(data_type, huge).unwrap_err().kind(), TensorErrorKind::Overflow);
        assert_eq!(
            Tensor::zeros(data_type, [1 << 61]).unwrap_err().kind(),
            TensorErrorKind::Overflow
        );
    }
}

#[test]
fn equality_is_values_and_shape() {
    // TENSOR-02+-, TENSOR-05
    assert_ne!(
        Tensor::from_vec([1], vec![1f32]).unwrap(),
        Tensor::from_vec([1, 1], vec![1f32]).unwrap()
    );
    assert_ne!(Tensor::scalar(1f32), Tensor::from_vec([1], vec![1f32]).unwrap());
    assert_ne!(Tensor::scalar(1i32), Tensor::scalar(1u32));
    assert_eq!(Tensor::scalar(f32::NAN), Tensor::scalar(f32::NAN));
    assert_ne!(Tensor::scalar(0f32), Tensor::scalar(-0f32));
    let packed = |last| Tensor::from_buffer(DataType::Int4, [3], vec![0x21, last].into()).unwrap();
    assert_eq!(packed(0x03), packed(0xF3)); // padding bits are ignored
    assert_ne!(packed(0x03), packed(0x02));
    assert_eq!(
        Tensor::zeros(DataType::String, [2]).unwrap(),
        Tensor::from(StringArray::from_iter(["", ""]))
    );
}

#[test]
fn odd_offsets_are_realigned_once_and_counted() {
    let mut file = vec![0u8; 3];
    (0..5).for_each(|i| file.extend((i as f32).to_ne_bytes()));
    let shared: SharedBytes = Arc::new(file);
    let whole = Buffer::from_shared(shared);
    // At least three of four consecutive offsets are unaligned for f32, wherever the allocation
    // starts.
    let mut refused = 0;
    for offset in 0..4 {
        let tensor =
            Tensor::from_buffer(DataType::Float, [4], whole.slice(offset..offset + 16).unwrap())
                .unwrap();
        let before = realigned_copies();
        let kind = tensor.as_slice::<f32>().map(|_| ()).map_err(|e| e.kind());
        assert_eq!(realigned_copies(), before);
        let cow = tensor.to_cow::<f32>().unwrap().into_owned();
        if kind == Err(TensorErrorKind::Alignment) {
            refused += 1;
            assert_eq!(realigned_copies(), before + 1);
        } else {
            kind.unwrap();
            assert_eq!(realigned_copies(), before);
        }
        if offset == 3 {
            assert_eq!(cow, [0.0, 1.0, 2.0, 3.0]);
        }
        assert_eq!(tensor.to_vec::<f32>().unwrap().len(), 4);
        let aligned = tensor.aligned().unwrap();
        assert_eq!(aligned.bytes().as_ptr().addr() % 64, 0);
        assert_eq!(aligned, tensor);
        let mut own = tensor.clone();
        own.as_mut_slice::<f32>().unwrap()[0] = 9.0;
        assert_ne!(own, tensor);
        let view = tensor.view();
        assert_eq!(view.as_slice::<f32>().is_ok(), tensor.as_slice::<f32>().is_ok());
    }
    assert_eq!(refused, 3);
    // A unique buffer at an unaligned offset is realigned before it is borrowed for writing.
    let part = Buffer::from_vec(vec![0; 40]).slice(1..33).unwrap();
    let mut tensor = Tensor::from_buffer(DataType::Double, [4], part).unwrap();
    tensor.as_mut_slice::<f64>().unwrap().fill(1.0);
    assert_eq!(tensor.to_vec::<f64>().unwrap(), [1.0; 4]);
}

#[test]
fn sharing_and_writing() {
    let mut a = floats(&[2, 3]);
    let place = a.bytes().as_ptr();
    a.as_mut_slice::<f32>().unwrap()[0] = 5.0;
    assert_eq!(a.bytes().as_ptr(), place);
    let b = a.reshape([3, 2]).unwrap();
    assert_eq!(b.bytes().as_ptr(), place);
    a.as_mut_slice::<f32>().unwrap()[0] = 6.0;
    assert_eq!((a.as_slice::<f32>().unwrap()[0], b.as_slice::<f32>().unwrap()[0]), (6.0, 5.0));
    assert!(a.reshape([4]).is_err());
    assert_eq!(a.as_slice::<i32>().unwrap_err().kind(), TensorErrorKind::Type);
    assert!(
        a.as_mut_slice::<f64>().is_err() && a.to_vec::<u8>().is_err() && a.item::<f32>().is_err()
    );
    assert_eq!(Tensor::scalar(3i64).item::<i64>().unwrap(), 3);
    assert!(Tensor::zeros(DataType::String, [1]).unwrap().bytes_mut().is_err());
}

#[test]
fn display_is_bounded_and_shows_dims() {
    // TENSOR-07
    assert_eq!(floats(&[2]).to_string(), "float[2] {0.0, 1.0}");
    assert_eq!(Tensor::zeros(DataType::Int8, [0, 5]).unwrap().to_string(), "int8[0,5] {}");
    assert_eq!(Tensor::scalar(-1i64).to_string(), "int64[] {-1}");
    assert!(floats(&[1000]).to_string().len() < 80);
    let strings = StringArray::from_iter(["a\"b".to_owned(), "x".repeat(1000)]);
    assert!(format!("{:?}", Tensor::from(strings)).len() < 100);
    for data_type in DataType::ALL {
        assert!(Tensor::zeros(data_type, [9]).unwrap().to_string().starts_with(data_type.name()));
    }
}

#[test]
fn views_walk_as_told() {
    let t = floats(&[2, 3, 4]);
    let v = t.view();
    assert!(v.is_contiguous());
    let moved = v.transpose(&[2, 0, 1]).unwrap();
    assert_eq!((moved.dims(), moved.strides().as_slice()), (&[4, 2, 3][..], &[1isize, 12, 4][..]));
    let dense = moved.to_tensor().unwrap();
    assert_eq!(dense.as_slice::<f32>().unwrap()[..7], [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 1.0]);
    assert_eq!(dense.view().transpose(&[1, 2, 0]).unwrap().to_tensor().unwrap(), t);
    let part = v.slice(1, 2, 2, -2).unwrap().slice(2, 1, 2, 1).unwrap();
    assert_eq!(
        part.to_tensor().unwrap().to_vec::<f32>().unwrap(),
        [9.0, 10.0, 1.0, 2.0, 21.0, 22.0, 13.0, 14.0]
    );
    let outer = v.slice(0, 1, 1, 1).unwrap();
    assert!(outer.is_contiguous());
    assert_eq!(outer.as_slice::<f32>().unwrap()[0], 12.0);
    assert_eq!(outer.reshape([12]).unwrap().as_slice::<f32>().unwrap().len(), 12);
    let row = floats(&[3]);
    let wide = row.view().broadcast_to(vec![2, 3]).unwrap().to_tensor().unwrap();
    assert_eq!(wide.to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
    assert!(moved.as_slice::<f32>().is_err() && moved.reshape(vec![24]).is_err());
    assert_eq!(moved.data_slice::<f32>().unwrap().len(), 24);
    for bad in [
        v.transpose(&[0, 1]),
        v.transpose(&[0, 0, 1]),
        v.slice(3, 0, 1, 1),
        v.slice(0, 2, 1, 1),
        v.slice(0, 0, 3, 1),
    ] {
        assert!(bad.is_err());
    }
    assert!(v.slice(0, 0, 3, 0).is_ok() && v.slice(0, 0, 2, -1).is_err());
    assert!(
        v.slice(0, 0, usize::MAX, isize::MAX).is_err() && v.slice(0, 7, 0, 1).unwrap().is_empty()
    );
}

#[test]
fn views_of_packed_elements_and_strings() {
    let t = Tensor::from_codes(DataType::Float6e3m2, [2, 3], &[1, 2, 3, 4, 5, 63]).unwrap();
    let moved = t.view().transpose(&[1, 0]).unwrap().to_tensor().unwrap();
    assert_eq!(moved.to_codes().unwrap(), [1, 4, 2, 5, 3, 63]);
    let tail = t.view().slice(0, 1, 1, 1).unwrap();
    assert_eq!(tail.contiguous_bytes(), None); // starts in the middle of a byte
    assert_eq!(tail.to_tensor().unwrap().to_codes().unwrap(), [4, 5, 63]);
    let s = Tensor::from_strings([2, 2], StringArray::from_iter(["a", "b", "c", "d"])).unwrap();
    let moved = s.view().transpose(&[1, 0]).unwrap().to_tensor().unwrap();
    assert_eq!(moved.strings().unwrap(), &StringArray::from_iter(["a", "c", "b", "d"]));
}

#[test]
fn views_with_strides_are_checked() {
    let bytes = [0u8; 24];
    let make = |dims: &[usize], strides: &[isize], offset| {
        let data = ViewData::Bytes(&bytes);
        let owned = TensorView::with_strides(DataType::Float, dims, strides, offset, data);
        let borrowed = TensorView::over_strides(DataType::Float, dims, strides, offset, data);
        let len = borrowed.map(|view| view.reborrow().len());
        assert_eq!(owned.map(|view| view.len()), len);
        len
    };
    assert_eq!(make(&[2, 3], &[3, 1], 0), Ok(6));
    assert_eq!(make(&[6], &[-1], 5), Ok(6));
    assert_eq!(make(&[9, 0], &[100, 100], 99), Ok(0));
    assert_eq!(make(&[1 << 60], &[0], 5), Ok(1 << 60));
    for (dims, strides, offset) in [
        (&[2, 3][..], &[3, 1][..], 1),
        (&[6], &[-1], 4),
        (&[2], &[isize::MAX], 0),
        (&[2], &[isize::MIN], 0),
        (&[2], &[], 0),
        (&[], &[], 6),
        (&[], &[], usize::MAX),
    ] {
        assert!(make(dims, strides, offset).is_err(), "{dims:?} {strides:?} {offset}");
    }
    assert!(
        TensorView::with_strides(DataType::String, [], [], 0, ViewData::Bytes(&bytes)).is_err()
    );
    let tensor = floats(&[2, 3]);
    let (dims, strides) = ([3, 2], [-1isize, 3]);
    let data = tensor.view().data();
    let owned = TensorView::with_strides(DataType::Float, dims, strides, 2, data).unwrap();
    let borrowed = TensorView::over_strides(DataType::Float, &dims, &strides, 2, data).unwrap();
    for view in [owned.reborrow(), borrowed.reborrow(), owned.clone(), borrowed.clone()] {
        assert_eq!((view.dims(), &view.strides()[..], view.offset()), (&dims[..], &strides[..], 2));
        let copy = view.to_tensor().unwrap();
        assert_eq!(copy.as_slice::<f32>().unwrap(), [2.0, 5.0, 1.0, 4.0, 0.0, 3.0]);
        assert_eq!(view.contiguous_bytes(), None);
    }
    let mut out = [0f32; 6];
    let mut target = TensorViewMut::from_slice(vec![2, 3], &mut out).unwrap();
    target.copy_from(&floats(&[3, 2]).view().transpose(&[1, 0]).unwrap()).unwrap();
    assert!(target.copy_from(&floats(&[3, 2]).view()).is_err());
    assert_eq!(out, [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
}

#[test]
fn sequences_and_maps_are_homogeneous() {
    // TYPE-15+-
    let mut sequence =
        Sequence::from_tensors(DataType::Float, [floats(&[2]), floats(&[1, 3])]).unwrap();
    let error = sequence.push(Tensor::scalar(1i64).into()).unwrap_err();
    assert_eq!(error.message(), "a sequence of tensor(float) cannot hold tensor(int64)");
    sequence.insert(0, floats(&[]).into()).unwrap();
    assert!(sequence.insert(9, floats(&[]).into()).is_err() && sequence.remove(9).is_none());
    assert_eq!((sequence.len(), sequence.remove(0)), (3, Some(floats(&[]).into())));
    // TYPE-16+, TYPE-17, TYPE-29-
    let mut map = Map::new(DataType::Int8, ValueType::Tensor(DataType::Float)).unwrap();
    map.push(MapKey::Signed(-128), floats(&[]).into()).unwrap();
    for (key, value) in [
        (MapKey::Signed(128), floats(&[])),
        (MapKey::Unsigned(1), floats(&[])),
        (MapKey::String(b"a"[..].into()), floats(&[])),
        (MapKey::Signed(1), Tensor::scalar(1i32)),
    ] {
        assert!(map.push(key, value.into()).is_err());
    }
    assert!(map.get(&MapKey::Signed(-128)).is_some() && !map.has_duplicate_keys());
    map.push(MapKey::Signed(-128), floats(&[]).into()).unwrap();
    assert!(map.has_duplicate_keys());
    for bad in [DataType::Float, DataType::Bool, DataType::Int4] {
        assert!(Map::new(bad, ValueType::Tensor(DataType::Float)).is_err());
    }
    // TYPE-14, TYPE-18
    let some = Value::some(Value::Map(map));
    assert_eq!(some.value_type().to_string(), "optional(map(int8,tensor(float)))");
    let none = Value::none(ValueType::Sequence(Box::new(ValueType::Tensor(DataType::String))));
    assert_eq!(none.value_type().to_string(), "optional(seq(tensor(string)))");
}

#[test]
fn sparse() {
    let i64s = |dims: &[usize], v: &[i64]| Tensor::from_slice(dims, v).unwrap();
    let values = floats(&[2]).reshape([2]).unwrap();
    // TENSOR-34+-, TENSOR-35+-, TENSOR-38+
    let linear = Sparse::new([2, 3], values.clone(), i64s(&[2], &[1, 5])).unwrap();
    let tuples = Sparse::new([2, 3], values.clone(), i64s(&[2, 2], &[0, 1, 1, 2])).unwrap();
    let dense = linear.to_dense().unwrap();
    assert_eq!(dense, tuples.to_dense().unwrap());
    assert_eq!(dense.to_vec::<f32>().unwrap(), [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    // TENSOR-36, TENSOR-37
    for (dims, indices) in [
        (&[2, 3][..], i64s(&[2], &[5, 1])),
        (&[2, 3], i64s(&[2], &[1, 1])),
        (&[2, 3], i64s(&[2], &[1, 6])),
        (&[2, 3], i64s(&[2], &[-1, 5])),
        (&[2, 3], i64s(&[2, 2], &[0, 1, 1, 3])),
        (&[2, 3], i64s(&[2, 3], &[0; 6])),
        (&[2, 3], i64s(&[1], &[0])),
        (&[], i64s(&[2], &[0, 1])),
        (&[2, 0], i64s(&[2], &[0, 1])),
    ] {
        assert!(Sparse::new(dims, values.clone(), indices).is_err(), "{dims:?}");
    }
    assert!(Sparse::new([6], floats(&[1, 2]), i64s(&[2], &[0, 1])).is_err());
    assert!(Sparse::new([6], values, Tensor::from_slice([2], &[0i32, 1]).unwrap()).is_err());
    let packed = Tensor::from_codes(DataType::Int4, [2], &[7, 15]).unwrap();
    let dense = Sparse::new([3], packed, i64s(&[2], &[0, 2])).unwrap().to_dense().unwrap();
    assert_eq!(dense.to_codes().unwrap(), [7, 0, 15]);
    let words = Tensor::from(StringArray::from_iter(["x"]));
    let dense = Sparse::new([2], words, i64s(&[1], &[1])).unwrap().to_dense().unwrap();
    assert_eq!(dense.strings().unwrap(), &StringArray::from_iter(["", "x"]));
    let none = Sparse::new([2], floats(&[0]), i64s(&[0], &[])).unwrap();
    assert_eq!(none.to_dense().unwrap(), Tensor::zeros(DataType::Float, [2]).unwrap());
}

#[test]
fn dense_tensors_become_sparse_and_dense_again() {
    let rows = [
        (Tensor::from_slice([2, 2], &[0f32, -0.0, f32::NAN, 1.0]).unwrap(), vec![1, 2, 3]),
        (Tensor::from_codes(DataType::Int4, [3], &[7, 0, 15]).unwrap(), vec![0, 2]),
        (Tensor::from_bools([3], &[false, false, true]).unwrap(), vec![2]),
        (Tensor::from(StringArray::from_iter(["", "x", ""])), vec![1]),
        (Tensor::zeros(DataType::Int64, [2, 3]).unwrap(), vec![]),
    ];
    for (dense, positions) in rows {
        let sparse = Sparse::from_dense(&dense).unwrap();
        assert_eq!(sparse.positions(), positions);
        assert!(sparse.to_dense().unwrap().bit_eq(&dense), "{dense:?}");
    }
    for dims in [&[][..], &[0, 3]] {
        assert!(Sparse::from_dense(&Tensor::zeros(DataType::Float, dims).unwrap()).is_err());
    }
}
