// Members that are consumers of kafkajs, behind the line protocol of tests/compat/members/common.py.
const readline = require('node:readline')
const { Kafka, PartitionAssigners, logLevel } = require('kafkajs')

const kafka = new Kafka({
  brokers: [process.argv[process.argv.length - 1]],
  logLevel: logLevel.ERROR,
  logCreator: () => ({ log }) => console.error(log.message, log),
})
const members = new Map()

async function start({ member, group, topic, session_ms: sessionTimeout }) {
  const say = what => console.log(JSON.stringify({ member, ...what }))
  const consumer = kafka.consumer({
    groupId: group,
    sessionTimeout,
    rebalanceTimeout: sessionTimeout,
    heartbeatInterval: 1000,
    metadataMaxAge: 1000,
    maxWaitTimeInMs: 200,
    partitionAssigners: [PartitionAssigners.roundRobin],
  })
  members.set(member, { consumer, say })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    say({ event: 'assignment', partitions: payload.memberAssignment[topic] ?? [] }),
  )
  consumer.on(consumer.events.REBALANCING, () => say({ event: 'assignment', partitions: [] }))
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    if (!payload.restart) say({ event: 'failed', why: String(payload.error) })
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatch: batch(consumer, say, topic) })
}

const batch = (consumer, say, topic) => async ({ batch: { partition, messages }, resolveOffset }) => {
  for (const { offset } of messages) {
    say({ event: 'record', partition, offset: Number(offset) })
    resolveOffset(offset)
  }
  const end = Number(messages[messages.length - 1].offset) + 1
  try {
    await consumer.commitOffsets([{ topic, partition, offset: String(end) }])
    say({ event: 'committed', offsets: { [partition]: end } })
  } catch (error) {
    say({ event: 'uncommitted', why: String(error) })
    throw error
  }
}

async function leave({ member }) {
  const { consumer, say } = members.get(member)
  await consumer.disconnect()
  say({ event: 'left' })
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { do: what, ...request } = JSON.parse(line)
    const done = what === 'leave' ? leave(request) : start(request)
    done.catch(error => console.log(JSON.stringify({ member: request.member, event: 'failed', why: error.stack })))
  }
  process.exit(0)
}

main()
