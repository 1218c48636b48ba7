//! Function bodies of standard operators: definitions in terms of other operators, as ONNX text or
//! as a `FunctionProto`.
//!
//! ```
//! use sardonyx::tool::{OperatorFunction, TextPart, parse_part};
//!
//! let hard_swish = OperatorFunction::find("", "HardSwish", 22);
//! let hard_swish = hard_swish.expect("a function that does not depend on the call");
//! assert_eq!(
//!     hard_swish.text(),
//!     "<domain: \"\", opset_import: [\"\": 22]>\n\
//!      HardSwish (X) => (Y)\n\
//!      {\n  \
//!        gate = HardSigmoid <alpha = 0.16666667, beta = 0.5> (X)\n  \
//!        Y = Mul (X, gate)\n\
//!      }\n"
//! );
//!
//! // The body of `Clip` depends on which limits the call has.
//! assert_eq!(OperatorFunction::find("", "Clip", 13), None);
//! let node = parse_part(TextPart::Node, b"y = Clip (x, low)".to_vec())?;
//! let clip = OperatorFunction::from_call(node, &[], 13)?.expect("a function for this call");
//! assert!(clip.text().contains("output = Where (below, min, input)"));
//! assert!(!clip.text().contains("above"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use sardonyx_model::Type;
use sardonyx_ops::Registry;
use sardonyx_passes::function_of_call;
use sardonyx_tensor::Buffer;

use crate::error::{Error, ErrorKind};
use crate::message::{self, Header, MessagePart};
use crate::text_parts::{TextPart, parse_part};

/// Definition of a standard operator as a function of other operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorFunction {
    text: String,
}

impl OperatorFunction {
    /// Returns the function that defines an operator in version `opset` of its domain. `None` if
    /// the operator has no function, if the function depends on the call, or if operators in the
    /// function changed between the operator set that it is written for and `opset`.
    pub fn find(domain: &str, operator: &str, opset: u32) -> Option<OperatorFunction> {
        let operator = Registry::standard().operator(domain, operator)?;
        let text = operator.function_text(&Registry::standard(), opset, None)?;
        Some(OperatorFunction { text })
    }

    /// Returns the function that defines an operator for one call. `node` is the call, a serialized
    /// `NodeProto`. `types` has the known types of its first inputs. `None` if the operator has no
    /// function for the call, or if a subgraph of the node captures values from outside.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Format`] if the bytes are not a `NodeProto`.
    pub fn from_call(
        node: impl Into<Buffer>,
        types: &[Option<Type>],
        opset: u32,
    ) -> Result<Option<OperatorFunction>, Error> {
        let node = node.into();
        let wrapped = message::read(node.as_slice(), MessagePart::Node, &Header::default())?.graph;
        let node = wrapped.main_graph().and_then(|graph| graph.nodes.first());
        let Some(&node) = node else {
            return Err(Error::new(ErrorKind::Format, "the bytes contain no NodeProto"));
        };
        let registry = Registry::standard();
        let text = function_of_call(&wrapped, &registry, node, types, opset);
        Ok(text.map(|text| OperatorFunction { text }))
    }

    /// Returns the function that defines the operator as ONNX text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Serializes the function that defines the operator as a `FunctionProto`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Format`] if ONNX text cannot express a subgraph of the call.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        parse_part(TextPart::Function, self.text.clone().into_bytes())
            .map_err(|error| Error::new(ErrorKind::Format, error.to_string()).with_source(error))
    }
}
