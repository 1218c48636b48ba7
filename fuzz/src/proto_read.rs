//! Property: the pull reader reads any bytes as any message and returns fields that borrow from the
//! source, or an error.
//!
//! The first byte chooses the message type, the second the limit on depth; the rest is the message.

use std::fmt::Write;

use sardonyx_proto::*;

/// Declares every message type with its fields of three groups: messages, lists of numbers, and
/// text or bytes. Fields in none of them are single numbers and need no visit.
macro_rules! visits {
    ($($message:ident $field:ident [$($inner:ident)*] [$($list:ident)*] [$($text:ident)*];)*) => {
        $(impl Visit for $message {
            fn visit(reader: Reader<'_, Self>, walk: &mut Walk<'_>) -> Result<(), Error> {
                walk.message(reader.slice());
                for field in reader {
                    let field = field?;
                    walk.field(&field);
                    match field {
                        $($field::$inner(inner) => Visit::visit(inner, walk)?,)*
                        $($field::$list(chunk) => {
                            if let Chunk::Packed(slice) = chunk {
                                walk.slice(slice);
                            }
                            for item in chunk.iter() {
                                item?;
                                walk.numbers += 1;
                            }
                        })*
                        $($field::$text(slice) => walk.slice(slice),)*
                        $field::Unknown(unknown) => walk.slice(unknown.record),
                        #[allow(unreachable_patterns)] // some messages have no single numbers
                        _ => {}
                    }
                }
                Ok(())
            }
        })*

        /// Readers of each message type.
        const TYPES: &[fn(&[u8], Limits) -> Result<(), Error>] = &[$(read::<$message>),*];
    };
}

visits! {
    ModelProto ModelField
        [Graph OpsetImport MetadataProps TrainingInfo Functions Configuration]
        []
        [ProducerName ProducerVersion Domain DocString];
    OperatorSetIdProto OperatorSetIdField [] [] [Domain];
    GraphProto GraphField
        [Node Initializer Input Output ValueInfo QuantizationAnnotation SparseInitializer
         MetadataProps]
        []
        [Name DocString];
    NodeProto NodeField
        [Attribute MetadataProps DeviceConfigurations]
        []
        [Input Output Name OpType DocString Domain Overload];
    AttributeProto AttributeField
        [T G Tensors Graphs Tp TypeProtos SparseTensor SparseTensors]
        [Floats Ints]
        [Name S Strings DocString RefAttrName];
    ValueInfoProto ValueInfoField [Type MetadataProps] [] [Name DocString];
    TensorProto TensorField
        [Segment ExternalData MetadataProps]
        [Dims FloatData Int32Data Int64Data DoubleData Uint64Data]
        [StringData Name RawData DocString];
    TensorSegment TensorSegmentField [] [] [];
    SparseTensorProto SparseTensorField [Values Indices] [Dims] [];
    TensorShapeProto TensorShapeField [Dim] [] [];
    Dimension DimensionField [] [] [DimParam Denotation];
    TypeProto TypeField
        [TensorType SequenceType MapType OpaqueType SparseTensorType OptionalType]
        []
        [Denotation];
    TensorTypeProto TensorTypeField [Shape] [] [];
    SequenceTypeProto SequenceTypeField [ElemType] [] [];
    MapTypeProto MapTypeField [ValueType] [] [];
    OptionalTypeProto OptionalTypeField [ElemType] [] [];
    SparseTensorTypeProto SparseTensorTypeField [Shape] [] [];
    OpaqueTypeProto OpaqueTypeField [] [] [Domain Name];
    FunctionProto FunctionField
        [Node OpsetImport AttributeProto ValueInfo MetadataProps]
        []
        [Name Input Output Attribute DocString Domain Overload];
    TrainingInfoProto TrainingInfoField
        [Initialization Algorithm InitializationBinding UpdateBinding]
        []
        [];
    StringStringEntryProto StringStringEntryField [] [] [Key Value];
    TensorAnnotation TensorAnnotationField [QuantParameterTensorNames] [] [TensorName];
    DeviceConfigurationProto DeviceConfigurationField [] [] [Name Device];
    NodeDeviceConfigurationProto NodeDeviceConfigurationField [ShardingSpec] [] [ConfigurationId];
    ShardingSpecProto ShardingSpecField [IndexToDeviceGroupMap ShardedDim] [Device] [TensorName];
    IntIntListEntryProto IntIntListEntryField [] [Value] [];
    ShardedDimProto ShardedDimField [SimpleSharding] [] [];
    SimpleShardedDimProto SimpleShardedDimField [] [] [DimParam];
    OperatorSetProto OperatorSetField
        [Operator Functions]
        []
        [Magic IrVersionPrerelease Domain DocString IrBuildMetadata];
    OperatorProto OperatorField [] [] [OpType DocString];
    SequenceProto SequenceField
        [TensorValues SparseTensorValues SequenceValues MapValues OptionalValues]
        []
        [Name];
    MapProto MapField [Values] [Keys] [Name StringKeys];
    OptionalProto OptionalField
        [TensorValue SparseTensorValue SequenceValue MapValue OptionalValue]
        []
        [Name];
}

/// Reads the bytes as the chosen message type, with every field in them.
pub(crate) fn check(input: &[u8]) {
    let Some(([which, depth], bytes)) = input.split_first_chunk() else {
        return;
    };
    let depth = match depth % 4 {
        0 => 3,
        1 => 20,
        _ => Limits::default().depth,
    };
    let read = TYPES[*which as usize % TYPES.len()];
    if let Err(error) = read(bytes, Limits { depth }) {
        assert!(error.offset() <= bytes.len() as u64, "{error}");
        assert!(!error.to_string().is_empty());
    }
}

fn read<M: Visit>(bytes: &[u8], limits: Limits) -> Result<(), Error> {
    let mut walk = Walk { source: bytes, messages: 0, numbers: 0, shown: 0 };
    let result = M::visit(Reader::with_limits(bytes, limits), &mut walk);
    if let Err(error) = &result {
        // The place of any error must be found.
        let place = find_place::<M>(bytes, error.offset(), limits);
        assert!(place.len() <= 64 * bytes.len(), "{place}");
    }
    assert!(walk.numbers <= bytes.len(), "more numbers than bytes");
    result
}

trait Visit: MessageType {
    fn visit(reader: Reader<'_, Self>, walk: &mut Walk<'_>) -> Result<(), Error>;
}

/// Counts of the fields that were read.
struct Walk<'a> {
    source: &'a [u8],
    messages: usize,
    numbers: usize,
    shown: u32,
}

impl Walk<'_> {
    fn message(&mut self, slice: Slice<'_>) {
        self.messages += 1;
        assert!(self.messages <= self.source.len() + 1, "more messages than bytes");
        self.slice(slice);
    }

    /// Asserts that the bytes lie in the source at the offset that the slice gives.
    fn slice(&self, slice: Slice<'_>) {
        let start = slice.offset as usize;
        let here = self.source.get(start..start + slice.bytes.len());
        let here = here.expect("a slice lies in its source");
        assert!(here.is_empty() || std::ptr::eq(here, slice.bytes));
    }

    /// Writes a field with `Debug`, which must work for any field. Only a few per input, since it
    /// is slow.
    fn field(&mut self, field: &dyn std::fmt::Debug) {
        struct Nowhere;
        impl Write for Nowhere {
            fn write_str(&mut self, _: &str) -> std::fmt::Result {
                Ok(())
            }
        }
        self.shown += 1;
        if self.shown <= 4 {
            write!(Nowhere, "{field:?}").expect("nothing is written");
        }
    }
}
