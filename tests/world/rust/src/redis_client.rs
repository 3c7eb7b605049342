//! redis-rs: strings, transactions and SCAN with RESP2 and RESP3, its cache, and restarts.

use crate::{LIMIT, Outcome, end_of_input};
use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::caching::CacheConfig;
use redis::{AsyncCommands, AsyncConnectionConfig, Client, RedisResult};
use std::time::{Duration, Instant};

fn client(address: &str, protocol: &str) -> RedisResult<Client> {
    Client::open(format!("redis://{address}/?protocol={protocol}"))
}

async fn strings(address: &str, protocol: &str) -> Outcome {
    let mut connection = client(address, protocol)?.get_multiplexed_async_connection().await?;
    redis::cmd("FLUSHALL").exec_async(&mut connection).await?;
    connection.mset::<_, _, ()>(&[("a", "1"), ("b", "2")]).await?;
    let found: Vec<Option<String>> = connection.mget(&["a", "b", "none"]).await?;
    assert_eq!(found, [Some("1".into()), Some("2".into()), None]);
    let (number, text, expires): (i64, String, bool) =
        redis::pipe().atomic().incr("a", 1).get("a").expire("a", 100).query_async(&mut connection).await?;
    assert_eq!((number, text.as_str(), expires), (2, "2", true));
    let mut pipeline = redis::pipe();
    for i in 0..1000 {
        pipeline.set(format!("k{i}"), i).ignore();
    }
    pipeline.exec_async(&mut connection).await?;
    let mut keys = connection.scan_match::<_, String>("k*").await?;
    let mut count = 0;
    while keys.next_item().await.transpose()?.is_some() {
        count += 1;
    }
    assert_eq!(count, 1000);
    Ok(())
}

/// The first attempt meets a value that another connection has changed.
fn watched(address: &str) -> Outcome {
    let client = client(address, "resp2")?;
    let (mut one, mut other) = (client.get_connection()?, client.get_connection()?);
    let mut attempts = 0;
    let before: i64 = redis::Commands::get(&mut one, "a")?;
    let (after,): (i64,) = redis::transaction(&mut one, &["a"], |connection, pipeline| {
        attempts += 1;
        if attempts == 1 {
            redis::Commands::incr::<_, _, ()>(&mut other, "a", 1)?;
        }
        pipeline.incr("a", 10).query(connection)
    })?;
    assert_eq!((attempts, after), (2, before + 11));
    Ok(())
}

async fn equal_soon(connection: &mut MultiplexedConnection, key: &str, expected: i64) -> Outcome {
    let begin = Instant::now();
    loop {
        let found: i64 = connection.get(key).await?;
        if found == expected {
            return Ok(());
        }
        assert!(begin.elapsed() < LIMIT, "the cache has {found} and not {expected}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn cache(address: &str) -> Outcome {
    let client = client(address, "resp3")?;
    let config = AsyncConnectionConfig::new().set_cache_config(CacheConfig::new());
    let mut reader = client.get_multiplexed_async_connection_with_config(&config).await?;
    let mut writer = client.get_multiplexed_async_connection().await?;
    for i in 0..200 {
        writer.set::<_, _, ()>("c", i).await?;
        equal_soon(&mut reader, "c", i).await?;
        assert_eq!(reader.get::<_, i64>("c").await?, i);
    }
    let statistics = reader.get_cache_statistics().ok_or("no cache")?;
    assert!(statistics.hit >= 1 && statistics.invalidate >= 1, "hits {}", statistics.hit);
    Ok(())
}

pub async fn clients(address: &str) -> Outcome {
    for protocol in ["resp2", "resp3"] {
        strings(address, protocol).await?;
    }
    let copy = address.to_owned();
    tokio::task::spawn_blocking(move || watched(&copy)).await??;
    cache(address).await
}

/// Until the end, a call may fail. A value that is there is the last one that was written.
async fn write(mut connection: ConnectionManager, key: &str) -> Outcome {
    let over = end_of_input();
    println!("begun");
    let mut i = 0;
    while !*over.borrow() {
        i += 1;
        let written: RedisResult<()> = connection.set(key, i).await;
        if written.is_ok() && let Ok(Some(found)) = connection.get::<_, Option<i64>>(key).await {
            assert_eq!(found, i);
        }
    }
    let begin = Instant::now();
    // The connection notices an end with its next command.
    while let Err(error) = connection.set::<_, _, ()>(key, "end").await {
        assert!(begin.elapsed() < LIMIT, "{error}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(connection.get::<_, String>(key).await?, "end");
    Ok(())
}

pub async fn restart(address: &str) -> Outcome {
    let config = ConnectionManagerConfig::new().set_min_delay(Duration::from_millis(20));
    let manager = ConnectionManager::new_with_config(client(address, "resp3")?, config).await?;
    write(manager, "r").await
}
