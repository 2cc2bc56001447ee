// kafkajs behind the line protocol of tests/compat/program.py, without "read": it reads in groups only.
const readline = require('node:readline')
const { CompressionCodecs, CompressionTypes, Kafka, Partitioners, logLevel } = require('kafkajs')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')

// kafkajs brings gzip only and takes the others as plug-ins.
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})

const TYPES = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.WARN, logCreator: toStandardError })

function toStandardError() {
  return ({ log }) => console.error(log.message, log)
}

async function connected(client, use) {
  await client.connect()
  try {
    return await use(client)
  } finally {
    await client.disconnect()
  }
}

const handlers = {
  create: ({ topic, partitions }) =>
    connected(kafka.admin(), async admin => {
      await admin.createTopics({ topics: [{ topic, numPartitions: partitions }] })
      return null
    }),

  write: ({ topic, partition, codec, records }) =>
    connected(kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner }), async producer => {
      const messages = records.map(record => message(record, partition))
      const [{ baseOffset }] = await producer.send({ topic, compression: TYPES[codec], messages })
      return records.map((_, i) => Number(baseOffset) + i)
    }),
}

function message({ timestamp, key, value, headers }, partition) {
  const named = {}
  for (const [name, each] of headers) (named[name] ??= []).push(bytes(each))
  return { partition, timestamp: String(timestamp), key: bytes(key), value: bytes(value), headers: named }
}

const bytes = hex => (hex === null ? null : Buffer.from(hex, 'hex'))

async function main() {
  await zstd.init()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer
    try {
      const { do: name, ...request } = JSON.parse(line)
      answer = { ok: await handlers[name](request) }
    } catch (error) {
      answer = { error: error.stack }
    }
    console.log(JSON.stringify(answer))
  }
}

main()
