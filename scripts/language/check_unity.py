import subprocess,collections,os,re,sys
root=sys.argv[1]
files=[f for f in subprocess.run(['git','-C',root,'ls-files','--cached','--others','--exclude-standard','src','tests'],capture_output=True,text=True).stdout.split() if f.endswith(('.cc','.cu')) and os.path.exists(os.path.join(root,f))]
tags=subprocess.run(['ctags','-L','-','--langmap=C++:+.cu','--kinds-C++=scgfvte','--fields=+ksS','-f','-'],input='\n'.join(files),cwd=root,capture_output=True,text=True).stdout
d=collections.defaultdict(set)
for l in tags.splitlines():
    p=l.split('\t')
    m=re.search(r'namespace:(\S*?__anon\w+)$',l.split('\tsignature')[0]) or re.search(r'namespace:(\S*__anon\w+)(\t|$)',l)
    sig=(re.search(r'signature:(\S.*)$',l) or [0,''])[1]
    static=re.search(r'/\^static ',l)
    if m or static:
        t='/'.join(p[1].split('/')[:3]) if p[1].startswith('src') else '/'.join(p[1].split('/')[:3 if p[1].count('/')>2 else 2])
        d[(t,p[0],sig if p[3]=='f' else '')].add(p[1])
for k,v in sorted(d.items()):
    if len(v)>1: print(k[0],k[1],k[2][:60],sorted(os.path.basename(x) for x in v)[:4])
