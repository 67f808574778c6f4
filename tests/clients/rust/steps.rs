//! What tests ask for by name.

use std::time::Duration;

use futures::TryStreamExt;
use pulsar::consumer::{ConsumerOptions, DeadLetterPolicy, InitialPosition};
use pulsar::reader::Reader;
use pulsar::{producer, Consumer, Pulsar, SubType, TokioExecutor};
use serde_json::{json, Value};

type Client = Pulsar<TokioExecutor>;
type Failure = Box<dyn std::error::Error + Send + Sync>;
pub type Outcome = Result<Value, Failure>;

pub async fn run(step: &str, url: &str, topic: &str) -> Outcome {
    let client: Client = Pulsar::builder(url, TokioExecutor).build().await?;
    match step {
        "message" => message(&client, topic).await,
        "batches" => batches(&client, topic).await,
        "exclusive" => exclusive(&client, topic).await,
        "shared" => shared(&client, topic).await,
        "negative" => negative(&client, topic).await,
        "dead_letter" => dead_letter(&client, topic).await,
        "cumulative" => cumulative(&client, topic).await,
        "reader" => reader(&client, topic).await,
        "properties" => properties(&client, topic).await,
        _ => Err(format!("unknown step {step}").into()),
    }
}

/// A consumer of the subscription "s" from the earliest message on.
async fn subscribe(client: &Client, topic: &str, kind: SubType) -> Result<Consumer<Vec<u8>, TokioExecutor>, Failure> {
    let options = ConsumerOptions::default().with_initial_position(InitialPosition::Earliest);
    Ok(client
        .consumer()
        .with_topic(topic)
        .with_subscription("s")
        .with_subscription_type(kind)
        .with_options(options)
        .with_unacked_message_resend_delay(Some(Duration::from_secs(5)))
        .build()
        .await?)
}

/// Send m0, m1 and so on, in batches of so many.
async fn send(client: &Client, topic: &str, count: usize, batch: Option<u32>) -> Result<(), Failure> {
    let options = producer::ProducerOptions { batch_size: batch, ..Default::default() };
    let mut producer = client.producer().with_topic(topic).with_options(options).build().await?;
    let mut receipts = Vec::new();
    for number in 0..count {
        receipts.push(producer.send_non_blocking(format!("m{number}")).await?);
    }
    if batch.is_some() {
        producer.send_batch().await?;
    }
    for receipt in receipts {
        receipt.await?;
    }
    producer.close().await?;
    Ok(())
}

/// The values of the next messages, acknowledged.
async fn values(consumer: &mut Consumer<Vec<u8>, TokioExecutor>, count: usize) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    while found.len() < count {
        let message = consumer.try_next().await?.ok_or("the stream ended")?;
        consumer.ack(&message).await?;
        found.push(String::from_utf8(message.deserialize())?);
    }
    Ok(found)
}

/// One message, there and back.
async fn message(client: &Client, topic: &str) -> Outcome {
    send(client, topic, 1, None).await?;
    Ok(json!(values(&mut subscribe(client, topic, SubType::Exclusive).await?, 1).await?))
}

/// Batches of ten, in order.
async fn batches(client: &Client, topic: &str) -> Outcome {
    send(client, topic, 50, Some(10)).await?;
    let found = values(&mut subscribe(client, topic, SubType::Exclusive).await?, 50).await?;
    Ok(json!(found.iter().enumerate().all(|(number, value)| *value == format!("m{number}"))))
}

/// A second consumer is refused.
async fn exclusive(client: &Client, topic: &str) -> Outcome {
    let _first = subscribe(client, topic, SubType::Exclusive).await?;
    let refused = tokio::time::timeout(Duration::from_secs(3), subscribe(client, topic, SubType::Exclusive)).await;
    Ok(json!(!matches!(refused, Ok(Ok(_)))))
}

/// Two consumers share twenty messages.
async fn shared(client: &Client, topic: &str) -> Outcome {
    let mut one = subscribe(client, topic, SubType::Shared).await?;
    let mut two = subscribe(client, topic, SubType::Shared).await?;
    send(client, topic, 20, None).await?;
    let mut found = std::collections::BTreeSet::new();
    while found.len() < 20 {
        let message = tokio::select! {
            message = one.try_next() => { let message = message?.ok_or("end")?; one.ack(&message).await?; message }
            message = two.try_next() => { let message = message?.ok_or("end")?; two.ack(&message).await?; message }
        };
        found.insert(String::from_utf8(message.deserialize())?);
    }
    Ok(json!(found.len()))
}

/// A negative acknowledgement brings the message again.
async fn negative(client: &Client, topic: &str) -> Outcome {
    send(client, topic, 1, None).await?;
    let mut consumer = subscribe(client, topic, SubType::Shared).await?;
    let message = consumer.try_next().await?.ok_or("the stream ended")?;
    consumer.nack(&message).await?;
    let again = consumer.try_next().await?.ok_or("the stream ended")?;
    consumer.ack(&again).await?;
    Ok(json!(String::from_utf8(again.deserialize())?))
}

/// After two deliveries a message goes to the dead letter topic.
async fn dead_letter(client: &Client, topic: &str) -> Outcome {
    let dead_topic = format!("{topic}-dead");
    let mut dead = subscribe(client, &dead_topic, SubType::Exclusive).await?;
    send(client, topic, 1, None).await?;
    let policy = DeadLetterPolicy { max_redeliver_count: 1, dead_letter_topic: dead_topic };
    let mut consumer: Consumer<Vec<u8>, _> = client
        .consumer()
        .with_topic(topic)
        .with_subscription("s")
        .with_subscription_type(SubType::Shared)
        .with_options(ConsumerOptions::default().with_initial_position(InitialPosition::Earliest))
        .with_dead_letter_policy(policy)
        .build()
        .await?;
    let message = consumer.try_next().await?.ok_or("the stream ended")?;
    consumer.nack(&message).await?;
    let found = tokio::select! {
        found = values(&mut dead, 1) => found?,
        _ = consumer.try_next() => return Err("it was delivered again".into()),
    };
    Ok(json!(found))
}

/// A cumulative acknowledgement outlives the consumer.
async fn cumulative(client: &Client, topic: &str) -> Outcome {
    send(client, topic, 4, None).await?;
    let mut consumer = subscribe(client, topic, SubType::Exclusive).await?;
    for number in 0..2 {
        let message = consumer.try_next().await?.ok_or("the stream ended")?;
        if number == 1 {
            consumer.cumulative_ack(&message).await?;
        }
    }
    tokio::time::sleep(Duration::from_millis(1500)).await; // acknowledgements are sent by a task of the consumer
    consumer.close().await?;
    Ok(json!(values(&mut subscribe(client, topic, SubType::Exclusive).await?, 2).await?))
}

/// A reader from the beginning.
async fn reader(client: &Client, topic: &str) -> Outcome {
    send(client, topic, 3, None).await?;
    let options = ConsumerOptions::default().with_initial_position(InitialPosition::Earliest);
    let mut reader: Reader<Vec<u8>, _> = client.reader().with_topic(topic).with_options(options).into_reader().await?;
    let mut found = Vec::new();
    while found.len() < 3 {
        let message = reader.try_next().await?.ok_or("the stream ended")?;
        found.push(String::from_utf8(message.deserialize())?);
    }
    Ok(json!(found))
}

/// The key and the properties arrive.
async fn properties(client: &Client, topic: &str) -> Outcome {
    let mut producer = client.producer().with_topic(topic).build().await?;
    let sent = producer.create_message().with_content("x").with_key("k").with_property("n", "1");
    sent.send_non_blocking().await?.await?;
    let message = subscribe(client, topic, SubType::Exclusive).await?.try_next().await?.ok_or("the stream ended")?;
    let metadata = &message.payload.metadata;
    Ok(json!([metadata.partition_key, metadata.properties[0].value]))
}
