// Writes v2js.json: requests that the AWS SDK for JavaScript of version 2 signs by version 2, at a fixed time.
//
// npm install aws-sdk@2 && node v2.js > v2js.json
process.env.AWS_SDK_JS_SUPPRESS_MAINTENANCE_MODE_MESSAGE = '1'
const AWS = require('aws-sdk')

Date.now = () => 1767225600000 // 2026-01-01T00:00:00Z
AWS.util.date.getDate = () => new Date(Date.now())
const keys = ['plain', 'a b', 'a+b', 'a%2Fb', 'ü/世', 'a//b', '/a', '../a', "~-_.!*'()", 'a&b=c?d#e', 'x?acl']
const out = []

function note(method, host, target, headers) {
  const kept = {}
  for (const [name, value] of Object.entries(headers)) {
    const lower = name.toLowerCase()
    if (!['user-agent', 'host', 'content-length', 'expect'].includes(lower)) kept[lower] = String(value)
  }
  out.push({ method, host, target, headers: kept })
}

async function main() {
  for (const s3ForcePathStyle of [true, false]) {
    const s3 = new AWS.S3({
      endpoint: 'http://s3.example.com', region: 'us-east-1', s3ForcePathStyle, accessKeyId: 'AKIAIOSFODNN7EXAMPLE',
      secretAccessKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY'
    })
    const old = new AWS.S3(Object.assign({}, s3.config, { signatureVersion: 's3' }))
    for (const Key of keys) {
      const at = { Bucket: 'abc', Key }
      for (const [name, method, params] of [
        ['getObject', 'GET', at],
        ['getObject', 'GET', { ...at, VersionId: 'Ab-_9', ResponseContentDisposition: 'attachment; filename="ü b+.txt"' }],
        ['headObject', 'HEAD', at], ['deleteObject', 'DELETE', at], ['putObject', 'PUT', at],
        ['putObject', 'PUT', { ...at, ACL: 'private', ContentType: 'text/plain', Metadata: { A: 'b c' } }],
        ['uploadPart', 'PUT', { ...at, UploadId: 'Ab-_9', PartNumber: 7 }],
        ['listObjectsV2', 'GET', { Bucket: 'abc', Prefix: Key }],
        ['getObjectTagging', 'GET', at]
      ]) {
        const [, host, target] = /^http:..([^/]*)(.*)$/.exec(s3.getSignedUrl(name, { ...params, Expires: 600 }))
        if (!target.includes('AWSAccessKeyId=')) throw new Error(target)
        note(method, host, target, {})
      }
      for (const [name, params] of [
        ['getObject', at], ['putObject', { ...at, Body: 'x', ContentType: 'text/plain', Metadata: { a: 'b' } }],
        ['createMultipartUpload', at], ['copyObject', { ...at, CopySource: encodeURIComponent('abc/' + Key) }],
        ['listBuckets', {}], ['putObjectTagging', { ...at, Tagging: { TagSet: [] } }]
      ]) {
        const request = old.makeRequest(name, params)
        request.removeAllListeners('send')
        request.on('send', () => {
          const h = request.httpRequest
          note(h.method, h.endpoint.host, h.path, h.headers)
          request.abort()
        })
        await request.promise().catch((e) => { if (e.code !== 'RequestAbortedError') throw e })
      }
    }
  }
  console.log(JSON.stringify(out, null, 0).replaceAll('},{', '},\n{'))
}

main()
