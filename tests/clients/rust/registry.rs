//! What the crate `schema_registry_converter` does with a schema registry.

use apache_avro::types::Value;
use schema_registry_converter::async_impl::avro::{AvroDecoder, AvroEncoder};
use schema_registry_converter::async_impl::schema_registry::{get_all_subjects, get_all_versions, get_schema_by_id, post_schema, SrSettings};
use schema_registry_converter::schema_registry_common::{SchemaType, SubjectNameStrategy, SuppliedSchema};
use serde_json::json;

use crate::steps::Outcome;

const ORDER: &str = r#"{"type":"record","name":"Order","fields":[{"name":"drink","type":"string"}]}"#;

fn supplied(schema: String) -> SuppliedSchema {
    SuppliedSchema { name: None, schema_type: SchemaType::Avro, schema, references: vec![] }
}

/// A record is written by one client and read by another; a schema that does not fit is refused.
pub async fn registry(url: &str) -> Outcome {
    let settings = SrSettings::new(format!("{url}/registry"));
    let strategy = SubjectNameStrategy::TopicNameStrategyWithSchema("rust".into(), false, supplied(ORDER.into()));
    let framed = AvroEncoder::new(settings.clone()).encode(vec![("drink", Value::String("tea".into()))], strategy).await?;
    let decoded = AvroDecoder::new(settings.clone()).decode(Some(&framed)).await?;
    let id = u32::from_be_bytes(framed[1..5].try_into()?);
    let kept = get_schema_by_id(id, &settings).await?.schema == ORDER;
    let later = ORDER.replace("]}", r#",{"name":"cups","type":"int"}]}"#);
    let refused = post_schema(&settings, "rust-value".into(), supplied(later)).await.is_err(); // the crate drops the code
    let listed = get_all_subjects(&settings).await?.contains(&"rust-value".to_string());
    let versions = get_all_versions(&settings, "rust-value".into()).await?;
    Ok(json!([framed[0], apache_avro::from_value::<serde_json::Value>(&decoded.value)?, kept, refused, listed, versions]))
}
