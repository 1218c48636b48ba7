//! Forms that sharding specifications request.

use std::collections::BTreeMap;

use sardonyx_model::Dim;
use sardonyx_passes::{FactorSize, ShardedDim, ShardingSpec, SimpleShardedDim};
use sardonyx_proto::shown;
use smallvec::SmallVec;

use crate::form::{Device, Form, Place, Split, SplitAxis};

/// Configuration and sizes with which specifications are read.
pub(crate) struct Reading<'a> {
    /// Number of devices of the configuration.
    pub(crate) devices: usize,
    /// Lookup of the size of a symbol in the run.
    pub(crate) symbol: &'a dyn Fn(&str) -> Option<usize>,
}

impl Reading<'_> {
    /// Returns the form that a specification requests for a tensor of sizes `dims`, which are
    /// `None` if they are not known. An axis that is split needs a known size.
    ///
    /// # Errors
    ///
    /// The reason why there is no such form, as a sentence without its subject, which is the
    /// specification.
    pub(crate) fn form(
        &self,
        spec: &ShardingSpec<'_>,
        dims: Option<&[Dim]>,
    ) -> Result<Form, String> {
        let entries: Result<Vec<Vec<Device>>, String> =
            spec.devices.iter().map(|entry| self.group(spec, *entry)).collect();
        let entries = entries?;
        if spec.dims.is_empty() {
            let devices: Vec<Device> = entries.into_iter().flatten().collect();
            let is_nowhere = devices.is_empty();
            // A specification without devices only requires that the tensor is whole.
            return Ok(Form::whole(if is_nowhere { self.all().collect() } else { devices }));
        }
        let unknown = "splits a tensor whose sizes are not known before the run";
        let dims = dims.ok_or(unknown)?;
        // Shards are numbered over the factors in the order of the specification, the last one
        // fastest.
        let mut listed: Vec<(usize, usize, Split)> = Vec::new();
        for dim in &spec.dims {
            let axis = axis(dim, dims.len())?;
            if listed.iter().any(|(other, ..)| *other == axis) {
                return Err(format!("splits axis {axis} twice"));
            }
            let factors = self.factors(dim, axis, dims[axis].size().ok_or(unknown)?)?;
            listed.extend(factors.into_iter().enumerate().map(|(at, split)| (axis, at, split)));
        }
        let shards =
            listed.iter().try_fold(1usize, |all, (.., split)| all.checked_mul(split.parts));
        let shards = shards.ok_or("has more shards than can be counted")?;
        if shards != entries.len() && !(shards == 1 && entries.is_empty()) {
            let count = entries.len();
            return Err(format!("has {shards} shards, and lists {count} devices or groups"));
        }
        let mut axes: Vec<SplitAxis> = vec![SplitAxis::new(); dims.len()];
        for dim in listed.iter().map(|(axis, ..)| *axis) {
            axes[dim] = listed.iter().filter(|(axis, ..)| *axis == dim).map(|(.., s)| *s).collect();
        }
        let places = places(&listed, entries)?;
        if shards == 1 && places.is_empty() {
            return Ok(Form::whole(self.all()));
        }
        Ok(Form::new(axes, None, places))
    }

    /// Returns all devices of the configuration.
    fn all(&self) -> impl Iterator<Item = Device> + use<> {
        0..Device::try_from(self.devices).unwrap_or(Device::MAX)
    }

    /// Returns the devices of an entry: those of the group with this key, else the device with this
    /// number.
    fn group(&self, spec: &ShardingSpec<'_>, entry: i64) -> Result<Vec<Device>, String> {
        let number = |device: i64| {
            let known =
                Device::try_from(device).ok().filter(|device| (*device as usize) < self.devices);
            known.ok_or_else(|| {
                format!("names device {device}; the configuration has {}", self.devices)
            })
        };
        match spec.groups.get(&entry) {
            Some(group) if group.is_empty() => Err(format!("has an empty group {entry}")),
            Some(group) => group.iter().map(|device| number(*device)).collect(),
            None => Ok(vec![number(entry)?]),
        }
    }

    /// Returns the factors of an axis, whose size is `size`, and their numbers of parts.
    fn factors(&self, dim: &ShardedDim<'_>, axis: usize, size: usize) -> Result<SplitAxis, String> {
        let mut open = None;
        let mut known = 1usize;
        let mut found = SplitAxis::new();
        for (index, factor) in dim.factors.iter().enumerate() {
            let parts = factor.num_shards.and_then(|count| usize::try_from(count).ok());
            let parts = parts.filter(|count| *count > 0).ok_or_else(|| {
                format!("has no number of parts for axis {axis}; set num_shards to 1 or more")
            })?;
            let own = if dim.factors.len() == 1 && factor.size.is_none() {
                Some(size)
            } else {
                self.size(factor)?
            };
            match own {
                Some(own) => {
                    known = known.checked_mul(own).ok_or("has sizes that are too large")?
                }
                None if open.replace(index).is_some() => {
                    return Err(format!("leaves the sizes of several factors of axis {axis} open"));
                }
                None => {}
            }
            found.push(Split { size: own.unwrap_or(0), parts });
        }
        if found.is_empty() {
            return Err(format!(
                "has no division of axis {axis}; list at least one simple sharding"
            ));
        }
        if let Some(open) = open {
            let fits = known > 0 && size.is_multiple_of(known);
            fits.then(|| found[open].size = size / known).ok_or_else(|| {
                format!("splits axis {axis} of size {size} into factors that do not divide it")
            })?;
            known *= found[open].size;
        }
        if known != size {
            return Err(format!("splits axis {axis} as if it had {known} elements; it has {size}"));
        }
        Ok(found)
    }

    fn size(&self, factor: &SimpleShardedDim<'_>) -> Result<Option<usize>, String> {
        match factor.size {
            None => Ok(None),
            Some(FactorSize::Value(size)) => {
                let known =
                    usize::try_from(size).map_err(|_| format!("has a factor of size {size}"));
                known.map(Some)
            }
            // The other factors determine the size of a symbol that has none.
            Some(FactorSize::Param(name)) => Ok((self.symbol)(&shown(name).to_string())),
        }
    }
}

fn axis(dim: &ShardedDim<'_>, rank: usize) -> Result<usize, String> {
    let given = dim.axis.ok_or("has a sharded dimension without an axis; set axis")?;
    let signed = i64::try_from(rank).unwrap_or(i64::MAX);
    let axis = if given < 0 { given + signed } else { given };
    usize::try_from(axis)
        .ok()
        .filter(|axis| *axis < rank)
        .ok_or_else(|| format!("splits axis {given} of a tensor with {rank} dimensions"))
}

/// Assigns each device its shard. The indices of a place are in the order of axes and factors,
/// which may differ from the order in which shards are numbered.
fn places(
    listed: &[(usize, usize, Split)],
    entries: Vec<Vec<Device>>,
) -> Result<BTreeMap<Device, Place>, String> {
    let mut order: SmallVec<[usize; 4]> =
        (0..listed.len()).filter(|index| listed[*index].2.parts > 1).collect();
    order.sort_by_key(|index| (listed[*index].0, listed[*index].1));
    let mut places: BTreeMap<Device, Place> = BTreeMap::new();
    for (shard, devices) in entries.into_iter().enumerate() {
        let mut rest = shard;
        let mut indices: SmallVec<[usize; 4]> = SmallVec::from_elem(0, listed.len());
        for (at, (.., split)) in listed.iter().enumerate().rev() {
            indices[at] = rest % split.parts;
            rest /= split.parts;
        }
        let place: Place = order.iter().map(|at| indices[*at]).collect();
        for device in devices {
            let known = places.entry(device).or_insert_with(|| place.clone());
            if *known != place {
                return Err(format!("gives device {device} several shards"));
            }
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranges::Ranges;

    fn spec(devices: &[i64], dims: &[(i64, &[(Option<i64>, i64)])]) -> ShardingSpec<'static> {
        let factor = |(size, shards): &(Option<i64>, i64)| SimpleShardedDim {
            size: size.map(FactorSize::Value),
            num_shards: Some(*shards),
        };
        let dim = |(axis, factors): &(i64, &[(Option<i64>, i64)])| ShardedDim {
            axis: Some(*axis),
            factors: factors.iter().map(factor).collect(),
        };
        ShardingSpec {
            devices: devices.to_vec(),
            dims: dims.iter().map(dim).collect(),
            ..ShardingSpec::default()
        }
    }

    fn form(spec: &ShardingSpec<'_>, dims: &[usize]) -> Result<Form, String> {
        let dims: Vec<Dim> = dims.iter().map(|size| Dim::from(*size)).collect();
        Reading { devices: 4, symbol: &|_| None }.form(spec, Some(&dims))
    }

    /// Returns the indices of each axis that a device holds.
    fn held(form: &Form, device: Device, dims: &[usize]) -> Option<Vec<Vec<usize>>> {
        let ranges = form.ranges(device, dims)?;
        let indices = |r: &Ranges| r.iter().flat_map(Clone::clone).collect();
        Some(ranges.iter().map(indices).collect())
    }

    /// DIST-21, DIST-22: the tables of the proposal 0006.
    #[test]
    fn the_first_listed_axis_is_outermost() {
        let rows = form(&spec(&[0, 1], &[(0, &[(None, 2)])]), &[2, 2]).expect("it is valid");
        assert_eq!(held(&rows, 0, &[2, 2]), Some(vec![vec![0], vec![0, 1]]));
        assert_eq!(held(&rows, 1, &[2, 2]), Some(vec![vec![1], vec![0, 1]]));
        assert_eq!(held(&rows, 2, &[2, 2]), None);
        let columns = form(&spec(&[0, 1], &[(-1, &[(None, 2)])]), &[2, 2]).expect("it is valid");
        assert_eq!(held(&columns, 1, &[2, 2]), Some(vec![vec![0, 1], vec![1]]));
        let both = spec(&[0, 1, 2, 3], &[(0, &[(None, 2)]), (1, &[(None, 2)])]);
        let both = form(&both, &[2, 2]).expect("it is valid");
        assert_eq!(held(&both, 1, &[2, 2]), Some(vec![vec![0], vec![1]]));
        assert_eq!(held(&both, 2, &[2, 2]), Some(vec![vec![1], vec![0]]));
        let columns_first = spec(&[0, 1, 2, 3], &[(1, &[(None, 2)]), (0, &[(None, 2)])]);
        let columns_first = form(&columns_first, &[2, 2]).expect("it is valid");
        assert_eq!(held(&columns_first, 1, &[2, 2]), Some(vec![vec![1], vec![0]]));
    }

    /// DIST-24, DIST-25: devices of a group hold equal parts, with and without a split.
    #[test]
    fn groups_hold_the_same() {
        let groups: BTreeMap<i64, Vec<i64>> = [(-1, vec![0, 1]), (-2, vec![2, 3])].into();
        let whole = ShardingSpec { groups: groups.clone(), ..spec(&[-1], &[]) };
        assert_eq!(form(&whole, &[2, 2]), Ok(Form::whole([0, 1])));
        let rows = ShardingSpec { groups, ..spec(&[-1, -2], &[(0, &[(None, 2)])]) };
        let rows = form(&rows, &[2, 2]).expect("it is valid");
        let held = |device| held(&rows, device, &[2, 2]).expect("it is there")[0].clone();
        assert_eq!([0, 1, 2, 3].map(held), [vec![0], vec![0], vec![1], vec![1]]);
    }

    #[test]
    fn invalid_specifications_are_refused() {
        let cases = [
            (spec(&[0, 1, 2], &[(0, &[(None, 2)])]), "has 2 shards, and lists 3 devices or groups"),
            (spec(&[0, 0], &[(0, &[(None, 2)])]), "gives device 0 several shards"),
            (spec(&[0, 4], &[(0, &[(None, 2)])]), "names device 4; the configuration has 4"),
            (spec(&[0, 1], &[(2, &[(None, 2)])]), "splits axis 2 of a tensor with 2 dimensions"),
            (
                spec(&[0, 1], &[(0, &[(Some(3), 2)])]),
                "splits axis 0 as if it had 3 elements; it has 6",
            ),
            (
                spec(&[0, 1], &[(0, &[(Some(4), 2), (None, 1)])]),
                "splits axis 0 of size 6 into factors that do not divide it",
            ),
            (
                spec(&[0, 1], &[(0, &[])]),
                "has no division of axis 0; list at least one simple sharding",
            ),
        ];
        for (spec, why) in cases {
            assert_eq!(form(&spec, &[6, 2]), Err(why.to_string()));
        }
        let scalar = spec(&[0, 1], &[(0, &[(None, 2)])]);
        assert!(form(&scalar, &[]).is_err());
        let open = Reading { devices: 4, symbol: &|_| None }.form(&scalar, None);
        assert_eq!(open, Err("splits a tensor whose sizes are not known before the run".into()));
    }
}
