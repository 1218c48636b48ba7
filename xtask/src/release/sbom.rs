//! Bills of materials in the form of CycloneDX 1.6: the crates of a product with versions, licences
//! and checksums, and which uses which.
//!
//! Nothing in them changes from one build to the next: they have no date, and the serial number is
//! a digest of the content.

use crate::Result;
use crate::dependencies::{Dependencies, Package};
use crate::release::digest::to_hex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Library that a product has in it and that is not a crate.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// SPDX expression.
    pub(crate) license: &'static str,
    pub(crate) url: &'static str,
}

/// Renders the bill of an artefact.
pub(crate) fn render_sbom(
    artefact: &str,
    dependencies: &Dependencies,
    libraries: &[Library],
) -> Result<String> {
    let product = &dependencies.packages[dependencies.product];
    let others = dependencies.packages.iter().enumerate();
    let others = others.filter(|(index, _)| *index != dependencies.product);
    let mut components: Vec<Value> = others.map(|(_, package)| to_component(package)).collect();
    let mut graph: Vec<Value> = Vec::new();
    for package in &dependencies.packages {
        let uses = package.uses.iter().map(|index| to_reference(&dependencies.packages[*index]));
        let mut uses: Vec<String> = uses.collect();
        if package.name == product.name {
            uses.extend(libraries.iter().map(|library| library.name.to_string()));
        }
        graph.push(json!({ "ref": to_reference(package), "dependsOn": uses }));
    }
    for library in libraries {
        components.push(json!({
            "type": "library",
            "bom-ref": library.name,
            "name": library.name,
            "version": library.version,
            "licenses": [{ "expression": library.license }],
            "externalReferences": [{ "type": "website", "url": library.url }],
        }));
        graph.push(json!({ "ref": library.name }));
    }
    let mut main = to_component(product);
    main["type"] = json!("application");
    main["description"] = json!(artefact);
    let mut bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": main,
            "tools": { "components": [{
                "type": "application",
                "name": "cargo xtask release",
                "version": product.version,
            }] },
        },
        "components": components,
        "dependencies": graph,
    });
    bill["serialNumber"] = json!(make_serial_number(&bill.to_string()));
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn to_component(package: &Package) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": to_reference(package),
        "name": package.name,
        "version": package.version,
        // Crates that only build others are listed, and are not in the artefact.
        "scope": if package.is_build_only { "excluded" } else { "required" },
        "licenses": [{ "expression": package.license.replace('/', " OR ") }],
        "purl": to_reference(package),
    });
    if let Some(checksum) = &package.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

/// Names a package as package URLs do.
fn to_reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

/// Makes a UUID, version 8, of a text.
fn make_serial_number(text: &str) -> String {
    let mut bytes = Sha256::digest(text.as_bytes());
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = to_hex(&bytes[..16]);
    let groups = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("urn:uuid:{}", groups.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_has_scopes_hashes_and_edges() {
        let macros =
            Package { is_build_only: true, ..Package::sample("macro", "MIT/Apache-2.0", &[]) };
        let product = Package { checksum: None, ..Package::sample("product", "MIT", &[0]) };
        let dependencies = Dependencies { packages: vec![macros, product], product: 1 };
        let c = Library {
            name: "glibc",
            version: "2.36".to_string(),
            license: "LGPL-2.1-or-later",
            url: "https://www.gnu.org/software/libc/",
        };
        let text = render_sbom("the command", &dependencies, &[c]).unwrap();
        let bill: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(bill["components"][0]["scope"], "excluded");
        assert_eq!(bill["components"][0]["hashes"][0]["content"], "00");
        let license = &bill["components"][0]["licenses"][0]["expression"];
        assert_eq!(license, "MIT OR Apache-2.0");
        assert_eq!(bill["components"][1]["name"], "glibc");
        let uses = &bill["dependencies"][1]["dependsOn"];
        assert_eq!(*uses, json!(["pkg:cargo/macro@1.0.0", "glibc"]));
        let serial = bill["serialNumber"].as_str().unwrap();
        assert_eq!((serial.len(), &serial[23..24], &serial[..9]), (45, "8", "urn:uuid:"));
    }
}
