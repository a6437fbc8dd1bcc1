INSERT INTO {{table}} SELECT a FROM {{topic}};
