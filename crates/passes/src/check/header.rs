//! Rules about the fields of a model outside of its graph.

use sardonyx_model::{Entry, shown_domain};
use sardonyx_proto::shown;

use super::Checker;
use crate::codes;
use crate::finding::Spot;
use crate::ir_version::{NEWEST_IR_VERSION, format_needs, ir_version_of_opset};

/// Keys of metadata that the standard defines, in lower case.
const KNOWN_KEYS: &[&str] = &["model_author", "model_license"];

/// Keys that describe the pixels of images, and the values that the standard permits. Compared
/// without regard to case.
const IMAGE_KEYS: &[(&str, &[&str])] = &[
    ("Image.BitmapPixelFormat", &["Gray8", "Rgb8", "Bgr8", "Rgba8", "Bgra8"]),
    ("Image.ColorSpaceGamma", &["Linear", "SRGB"]),
    (
        "Image.NominalPixelRange",
        &["NominalRange_0_255", "Normalized_0_1", "Normalized_1_1", "NominalRange_16_235"],
    ),
];

pub(super) fn is_known_key(key: &[u8]) -> bool {
    KNOWN_KEYS.iter().any(|known| key.eq_ignore_ascii_case(known.as_bytes()))
}

/// Whether a name looks like that of a package: words separated by dots.
fn is_domain(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'.').all(|word| {
        let fine = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        !word.is_empty() && word.iter().all(fine)
    })
}

impl Checker<'_> {
    pub(super) fn header(&mut self) {
        self.versions();
        self.opset_imports();
        let header = &self.model.header;
        if self.model.is_blank(header.domain) {
            self.add(&codes::NO_DOMAIN, Spot::MODEL.field("domain"), |_| {
                "the model has no domain".into()
            });
        } else if let Some(domain) = header.domain.map(|domain| self.texts.text(domain))
            && !is_domain(domain)
        {
            self.add(&codes::BAD_DOMAIN, Spot::MODEL.field("domain"), |_| {
                format!("the model's domain is '{}'", shown(domain))
            });
        }
        if self.model.is_blank(header.producer_name) && self.model.is_blank(header.producer_version)
        {
            let spot = Spot::MODEL.field("producer_name");
            self.add(&codes::NO_PRODUCER, spot, |_| "the model has no producer name".into());
        }
        self.check_markup(header.doc_string, Spot::MODEL);
        self.keys(&header.metadata_props, Spot::MODEL, "metadata_props");
        for (index, entry) in header.metadata_props.iter().enumerate() {
            self.image_metadata(index, entry);
        }
    }

    fn versions(&mut self) {
        let spot = Spot::MODEL.field("ir_version");
        let version = self.ir_version;
        match self.model.header.ir_version {
            None | Some(0) => {
                self.add(&codes::NO_IR_VERSION, spot, |_| "the model has no ir_version".into());
                return;
            }
            Some(..0) => {
                self.add(&codes::NO_IR_VERSION, spot, |_| {
                    format!("{version} is not an IR version")
                });
                return;
            }
            Some(_) if version > NEWEST_IR_VERSION => {
                self.add(&codes::NEWER_IR_VERSION, spot, |_| {
                    format!(
                        "the model has IR version {version}; the newest known version is {NEWEST_IR_VERSION}"
                    )
                });
            }
            Some(_) => {}
        }
        if version < NEWEST_IR_VERSION && self.wants(&codes::IR_VERSION_TOO_OLD) {
            for need in format_needs(self.model, version) {
                self.add_with(&codes::IR_VERSION_TOO_OLD, spot, |_| {
                    let fact = format!("IR version {version} does not support {}", need.feature);
                    let advice = format!("raise ir_version to {} or more", need.ir_version);
                    (fact, advice.into())
                });
            }
        }
    }

    fn opset_imports(&mut self) {
        let imports = &self.model.header.opset_import;
        let spot = Spot::MODEL.field("opset_import");
        // A missing `ir_version` has its own finding.
        if self.ir_version >= 3 && imports.is_empty() {
            self.add(&codes::NO_OPSET_IMPORT, spot, |_| {
                "the model imports no operator sets".into()
            });
        } else if (1..3).contains(&self.ir_version) && !imports.is_empty() {
            self.add(&codes::OPSET_IMPORT_TOO_EARLY, spot, |_| {
                "the IR version of the model does not support opset_import".into()
            });
        }
        self.check_imports(imports, Spot::MODEL);
    }

    /// Checks a list of imports of the model or of a function.
    pub(super) fn check_imports(&mut self, imports: &[sardonyx_model::OperatorSetId], part: Spot) {
        let mut seen = hashbrown::HashSet::new();
        for (index, import) in imports.iter().enumerate() {
            let spot = part.item("opset_import", index);
            let domain = self.domain(import.domain);
            let text = domain.map_or(&b""[..], |domain| self.texts.text(domain));
            let name = || shown_domain(&shown(text)).to_string();
            if !seen.insert(domain) {
                self.add(&codes::DUPLICATE_OPSET_IMPORT, spot, |_| {
                    format!("duplicate import of the operator set '{}'", name())
                });
            }
            if !text.is_empty() && !is_domain(text) {
                self.add(&codes::BAD_OPSET_DOMAIN, spot, |_| {
                    format!("invalid operator set name '{}'", name())
                });
            }
            let version = import.version.unwrap_or(0);
            let known = self.options.registry.versions(&String::from_utf8_lossy(text));
            let newest = known.map(|(_, newest)| newest);
            if i32::try_from(version).is_err() {
                self.add(&codes::OPSET_OUT_OF_RANGE, spot, |_| {
                    format!("'{}' has version {version}", name())
                });
            } else if version <= 0 {
                self.add(&codes::OPSET_WITHOUT_VERSION, spot, |_| match version {
                    0 => format!("'{}' is imported without a version", name()),
                    _ => format!("'{}' has version {version}", name()),
                });
            } else if let Some(newest) = newest.filter(|newest| version > i64::from(*newest)) {
                self.add(&codes::NEWER_OPSET, spot, |_| {
                    format!(
                        "version {version} of '{}' is imported; the newest known version is {newest}",
                        name()
                    )
                });
            } else if let Some(document) =
                self.declared_version(text).filter(|last| version > *last)
            {
                self.add_with(&codes::NEWER_OPSET, spot, |_| {
                    let fact = format!(
                        "version {version} of '{}' is imported; the operator set file has version {document}",
                        name()
                    );
                    let advice = format!(
                        "use the operator set file of version {version}, or import version {document}"
                    );
                    (fact, advice.into())
                });
            } else if let Some(needed) = ir_version_of_opset(text, version)
                && needed > self.ir_version
                && self.ir_version > 0
            {
                self.add_with(&codes::OPSET_NEEDS_NEWER_IR, spot, |model| {
                    let ir_version = model.header.ir_version.unwrap_or(0);
                    let fact = format!(
                        "version {version} of '{}' was released with IR version {needed}; the \
                         model has IR version {ir_version}",
                        name()
                    );
                    (fact, format!("raise ir_version to {needed}").into())
                });
            }
        }
    }

    /// Returns the version of the document that lists the operators of a domain.
    fn declared_version(&self, domain: &[u8]) -> Option<i64> {
        let mut sets = self.options.operator_sets.iter().rev();
        let set = sets.find(|set| !domain.is_empty() && set.domain.as_bytes() == domain)?;
        Some(set.version)
    }

    fn image_metadata(&mut self, index: usize, entry: &Entry) {
        let text = |symbol| self.model.maybe_text(symbol).unwrap_or_default();
        let (key, value) = (text(entry.key), text(entry.value));
        let same = |name: &&str, text: &[u8]| text.eq_ignore_ascii_case(name.as_bytes());
        let Some((name, values)) = IMAGE_KEYS.iter().find(|(name, _)| same(name, key)) else {
            return;
        };
        if !values.iter().any(|allowed| same(allowed, value)) {
            let spot = Spot::MODEL.item("metadata_props", index);
            self.add_with(&codes::IMAGE_METADATA, spot, |_| {
                let fact = format!("{name} is '{}'", shown(value));
                (fact, format!("the standard has {}", values.join(", ")).into())
            });
        }
    }

    /// Reports documentation with tags of HTML.
    pub(super) fn check_markup(&mut self, doc: Option<sardonyx_model::Symbol>, spot: Spot) {
        let Some(text) = doc.map(|doc| self.texts.text(doc)) else {
            return;
        };
        if let Some(tag) = closing_tag(text) {
            self.add(&codes::MARKUP_IN_DOCUMENTATION, spot.field("doc_string"), |_| {
                format!("the documentation has markup: '{}'", shown(tag))
            });
        }
    }
}

/// Returns the first closing tag of a text. Opening ones also occur in ordinary text, such as
/// `List<Tensor>`.
fn closing_tag(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'<') {
        rest = &rest[at..];
        let letters = rest
            .get(2..)
            .unwrap_or_default()
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric())
            .count();
        if rest.get(1) == Some(&b'/') && letters > 0 && rest.get(2 + letters) == Some(&b'>') {
            return Some(&rest[..letters + 3]);
        }
        rest = &rest[1..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_distinguished_from_text() {
        assert_eq!(closing_tag(b"a <b>x</b> c"), Some(&b"</b>"[..]));
        for fine in [&b"a < b / c > d"[..], b"List<Tensor>", b"</", b"<", b""] {
            assert_eq!(closing_tag(fine), None);
        }
    }

    #[test]
    fn domains_look_like_packages() {
        for fine in ["com.example", "org.onnx", "pkg.torch-2_0", "x"] {
            assert!(is_domain(fine.as_bytes()), "{fine}");
        }
        for odd in ["my domain!", "", ".a", "a..b", "a/b"] {
            assert!(!is_domain(odd.as_bytes()), "{odd}");
        }
    }
}
