//! What we need to know of a Service.

use std::sync::Arc;

use serde::Deserialize;

use super::Metadata;
use crate::identity::{Name, ObjectKey};

/// What we need to know of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Its name.
    pub key: Arc<ObjectKey>,
    /// Its identity.
    pub uid: Name,
    /// When it was created.
    pub created: Box<str>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

impl ServiceFacts {
    /// Reads the object's JSON.
    pub fn parse(json: &str) -> Result<Self, String> {
        let Object { metadata } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        metadata.check("Service")?;
        Ok(Self {
            key: Arc::new(ObjectKey::new(&metadata.namespace, &metadata.name)),
            uid: metadata.uid.as_ref().into(),
            created: metadata.created(),
        })
    }
}
