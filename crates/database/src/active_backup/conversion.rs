//! Converts a file to the schema of the image before its server starts, as OVN's own scripts do.
//!
//! A rollout restarts one member after the other. A backup replicates from a server with an older schema than its own, but not
//! from one with a newer schema: until it is restarted with the new image itself, it keeps what it has.

use crate::active_backup::manager::Member;
use crate::directory::{DataDirectory, DirectoryError};
use crate::finding::{Finding, FindingKind};
use crate::version::{SchemaStep, Version, schema_finding};

/// What is done about the schema of a file. Pure.
fn step(file: Version, image: Version) -> SchemaStep {
    match file.cmp(&image) {
        std::cmp::Ordering::Less => SchemaStep::Convert,
        std::cmp::Ordering::Equal => SchemaStep::Nothing,
        std::cmp::Ordering::Greater => SchemaStep::Newer,
    }
}

impl Member {
    /// Converts the file if the image has a newer schema. A failure is reported, and the server starts with the older one.
    pub(super) async fn convert(&self) {
        let Some(image) = self.image.schema else { return };
        let (found, finding) = match convert(&DataDirectory::new(&self.options), image).await {
            Ok((found, finding)) => (Some(found.to_string()), finding),
            Err(error) => {
                let message = format!(
                    "cannot convert the database to schema {image} of the image: {error}; it is served with its older schema; \
                     correct the cause and restart this pod"
                );
                (None, Some(Finding::new(FindingKind::SchemaOutdated, message)))
            }
        };
        self.state.send_modify(|state| (state.schema, state.schema_finding) = (found, finding));
    }
}

/// Returns the version that the file has now, and what is to be reported about it.
async fn convert(files: &DataDirectory<'_>, image: Version) -> Result<(Version, Option<Finding>), DirectoryError> {
    let file = files.schema_version().await?;
    let step = step(file, image);
    if step == SchemaStep::Convert {
        files.convert_file().await?;
        return Ok((image, None));
    }
    Ok((file, schema_finding(&step, file, &image.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_older_file_is_converted() {
        let image = Version(7, 11, 0);
        assert_eq!(step(Version(7, 3, 0), image), SchemaStep::Convert);
        assert_eq!(step(image, image), SchemaStep::Nothing);
        assert_eq!(step(Version(8, 0, 0), image), SchemaStep::Newer);
    }
}
