//! tonic, with the messages of gRPC's interoperability tests: full speed, slow readers, errors and restarts.

use crate::{LIMIT, Outcome, end_of_input};
use std::time::{Duration, Instant};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
struct Payload {
    #[prost(bytes = "vec", tag = "2")]
    body: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EchoStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SimpleRequest {
    #[prost(int32, tag = "2")]
    response_size: i32,
    #[prost(message, optional, tag = "3")]
    payload: Option<Payload>,
    #[prost(message, optional, tag = "7")]
    response_status: Option<EchoStatus>,
}

/// Also StreamingOutputCallResponse.
#[derive(Clone, PartialEq, prost::Message)]
struct SimpleResponse {
    #[prost(message, optional, tag = "1")]
    payload: Option<Payload>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResponseParameters {
    #[prost(int32, tag = "1")]
    size: i32,
    #[prost(int32, tag = "2")]
    interval_us: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct OutputRequest {
    #[prost(message, repeated, tag = "2")]
    response_parameters: Vec<ResponseParameters>,
}

fn items(count: usize, size: i32, interval_us: i32) -> OutputRequest {
    OutputRequest { response_parameters: vec![ResponseParameters { size, interval_us }; count] }
}

fn path(method: &str) -> PathAndQuery {
    format!("/grpc.testing.TestService/{method}").parse().expect("a path")
}

fn bytes(response: &SimpleResponse) -> usize {
    response.payload.as_ref().map_or(0, |payload| payload.body.len())
}

async fn unary(channel: &Channel, request: Request<SimpleRequest>) -> Result<usize, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(8 << 20);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<SimpleRequest, SimpleResponse>::default();
    Ok(bytes(client.unary(request, path("UnaryCall"), codec).await?.get_ref()))
}

async fn sized(channel: Channel, size: i32) -> Result<usize, Status> {
    unary(&channel, Request::new(SimpleRequest { response_size: size, ..Default::default() })).await
}

async fn down(channel: &Channel, request: OutputRequest) -> Result<Streaming<SimpleResponse>, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(8 << 20);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<OutputRequest, SimpleResponse>::default();
    Ok(client.server_streaming(Request::new(request), path("StreamingOutputCall"), codec).await?.into_inner())
}

async fn count(mut stream: Streaming<SimpleResponse>, size: usize) -> Result<usize, Status> {
    let mut found = 0;
    while let Some(item) = stream.message().await? {
        assert_eq!(bytes(&item), size);
        found += 1;
    }
    Ok(found)
}

async fn full_speed(channel: &Channel) -> Outcome {
    for (calls, size) in [(64, 1 << 20), (200, 100_000), (20, 4 << 20), (500, 1000)] {
        let tasks: Vec<_> = (0..calls).map(|_| tokio::spawn(sized(channel.clone(), size))).collect();
        for task in tasks {
            assert_eq!(task.await??, size as usize);
        }
    }
    let mut uploads = Vec::new();
    for _ in 0..64 {
        let payload = Some(Payload { body: vec![1; 1 << 20] });
        let (channel, request) = (channel.clone(), SimpleRequest { response_size: 10, payload, ..Default::default() });
        uploads.push(tokio::spawn(async move { unary(&channel, Request::new(request)).await }));
    }
    for upload in uploads {
        assert_eq!(upload.await??, 10);
    }
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(tokio::spawn(count(down(channel, items(40, 100_000, 0)).await?, 100_000)));
    }
    for stream in streams {
        assert_eq!(stream.await??, 40);
    }
    Ok(())
}

/// By default a stream that is not read holds up to 2 MiB of the 5 MiB that tonic accepts on a connection: two streams leave
/// room for other calls, and three do not, whatever the server is.
async fn slow_reader(channel: &Channel) -> Outcome {
    let mut paused = Vec::new();
    for _ in 0..2 {
        let mut stream = down(channel, items(30, 1 << 20, 0)).await?;
        assert!(stream.message().await?.is_some());
        paused.push(stream);
    }
    for _ in 0..100 {
        assert_eq!(sized(channel.clone(), 100).await?, 100);
    }
    for stream in paused {
        assert_eq!(count(stream, 1 << 20).await?, 29);
    }
    Ok(())
}

async fn errors(channel: &Channel) -> Outcome {
    let neighbour = down(channel, items(20, 100, 10_000)).await?;
    let mut large = Request::new(SimpleRequest::default());
    large.metadata_mut().insert("x-long", "v".repeat(20_000).parse()?);
    let error = unary(channel, large).await.expect_err("metadata above the limit");
    assert!(error.code() == Code::ResourceExhausted && error.message().contains("metadata_bytes_max"), "{error}");
    let text = "€".repeat(100);
    let response_status = Some(EchoStatus { code: 3, message: text.clone() });
    let error = unary(channel, Request::new(SimpleRequest { response_status, ..Default::default() })).await;
    let error = error.expect_err("a status");
    assert_eq!((error.code(), error.message()), (Code::InvalidArgument, text.as_str()));
    assert_eq!(count(neighbour, 100).await?, 20);
    Ok(())
}

async fn connect(address: &str) -> Result<Channel, tonic::transport::Error> {
    Endpoint::from_shared(format!("http://{address}"))?.connect().await
}

pub async fn calls(address: &str) -> Outcome {
    let channel = connect(address).await?;
    full_speed(&channel).await?;
    slow_reader(&channel).await?;
    errors(&channel).await
}

/// tonic has no policy of retries: calls that the end of the server ends are UNAVAILABLE. Those that a closed connection did
/// not take are CANCELLED by tonic itself, and only errors of tonic itself have a source.
pub async fn restart(address: &str) -> Outcome {
    let channel = connect(address).await?;
    let over = end_of_input();
    println!("begun");
    let (mut answered, mut failed) = (0, 0);
    while !*over.borrow() {
        match sized(channel.clone(), 1000).await {
            Ok(size) => {
                assert_eq!(size, 1000);
                answered += 1;
            }
            Err(error) => {
                assert!(error.code() == Code::Unavailable || std::error::Error::source(&error).is_some(), "{error:?}");
                failed += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    let begin = Instant::now();
    while let Err(error) = sized(channel.clone(), 10).await {
        assert!(begin.elapsed() < LIMIT, "{error}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("{answered} calls answered, {failed} failed");
    Ok(())
}
